# frozen_string_literal: true

require_relative "../tracing/memory"
require_relative "../tracing/refused"
require_relative "../message"

module Probescope
  module Otel
    # Reads the process context that an application has published (OTEP 4719). Runs in the child
    # that reads foreign processes (Tracing::Reader).
    module ProcessContext
      MAPPING = %r{\A(\h+)-(?:\S+ +){5}(?:/memfd:OTEL_CTX|\[anon_shmem:OTEL_CTX\]|\[anon:OTEL_CTX\])}n
      SIGNATURE = "OTEL_CTX"
      VERSION = 2
      HEADER = "a8 L< L< Q< Q<"
      HEADER_BYTES = 32
      MOST = 1 << 16
      TRIES = 5
      # An application has only one.
      MOST_MAPPINGS = 8

      module_function

      # Returns a newly encoded ProcessContext with the attributes that OpenTelemetry allows, or
      # nil.
      def read(pid)
        File.open("/proc/#{pid}/mem", "rb") do |io|
          memory = Tracing::Memory.new(io)
          addresses(pid).lazy.filter_map { |address| message(memory, address) }.first
        end
      rescue SystemCallError, EOFError
        nil
      end

      def addresses(pid)
        lines = File.foreach("/proc/#{pid}/maps", mode: "rb").lazy
        lines.filter_map { |line| line[MAPPING, 1]&.hex }.first(MOST_MAPPINGS)
      end

      def message(memory, address)
        bytes = payload(memory, address)
        bytes && Message.resource(Message.attributes(bytes))
      rescue Tracing::Refused, Message::Malformed
        nil
      end

      # Returns the complete payload, or nil.
      def payload(memory, address)
        TRIES.times do
          signature, version, size, published, from = memory.read(address, HEADER_BYTES).unpack(HEADER)
          return unless signature == SIGNATURE && version == VERSION && size <= MOST
          next if published.zero?

          bytes = memory.read(from, size)
          return bytes if memory.read(address, HEADER_BYTES).unpack(HEADER)[3] == published
        end
        nil
      end
    end
  end
end
