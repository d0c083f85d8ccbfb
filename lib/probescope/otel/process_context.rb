# frozen_string_literal: true

require_relative "../host/mappings"

module Probescope
  module Otel
    # The process context that an application has published (OTEP 4719), read from outside. Runs with privilege, and so does not
    # decode what it reads.
    module ProcessContext
      NAMES = ["/memfd:OTEL_CTX", "[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]"].freeze
      SIGNATURE = "OTEL_CTX"
      VERSION = 2
      HEADER = "a8 L< L< Q< Q<"
      HEADER_BYTES = 32
      MOST = 1 << 16
      TRIES = 5

      module_function

      # The encoded message, or nil.
      def read(pid)
        File.open("/proc/#{pid}/mem", "rb") do |memory|
          addresses(pid).filter_map { |address| payload(memory, address) }.first
        end
      rescue SystemCallError, EOFError
        nil
      end

      def addresses(pid)
        File.foreach("/proc/#{pid}/maps").filter_map do |line|
          line.hex if NAMES.any? { |name| line.split(" ", 6).last.to_s.start_with?(name) }
        end
      end

      # Whole, or nil.
      def payload(memory, address)
        TRIES.times do
          signature, version, size, published, from = memory.pread(HEADER_BYTES, address).unpack(HEADER)
          return unless signature == SIGNATURE && version == VERSION && size <= MOST
          next if published.zero?

          bytes = size.zero? ? "" : memory.pread(size, from)
          return bytes if memory.pread(HEADER_BYTES, address).unpack(HEADER)[3] == published
        end
        nil
      end
    end
  end
end
