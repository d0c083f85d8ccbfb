# frozen_string_literal: true

require_relative "bounds"
require_relative "elf"
require_relative "mappings"

module Probescope
  module Host
    # The probes that an application has defined while it runs (Provider, Latency), from the
    # libraries that it maps for them. Runs in the helper's reader (Foreign).
    module OwnProbes
      # As ext/core/provider_file.c names them.
      LIBRARY = %r{/probescope(-\d+)?/[^/]+-\h{16}(-\d+)?\.so( \(deleted\))?\z|\A/memfd:libstapsdt:}n

      module_function

      # [{name: "shop:checkout", arguments: 2, listened:, path:}, ...], by name. listened: what the
      # block says of its semaphore's address. path: the file by which every process with the same
      # provider is reached, nil when there is none. Raises SystemCallError.
      def of(pid, &listened)
        libraries = Mappings.files(pid).select { |file| LIBRARY.match?(file.path) }
        probes = libraries.first(Bounds::OWN_LIBRARIES).flat_map { |file| in_library(file, &listened) }
        probes.sort_by { |probe| probe[:name] }
      end

      def in_library(file)
        path = text(file.path) unless file.deleted?
        file.open do |io|
          elf = Elf.new(io)
          elf.probes.map do |probe|
            semaphore = probe.semaphore.zero? ? 0 : probe.semaphore + elf.bias(file.start)
            {name: text("#{probe.provider}:#{probe.name}"), arguments: probe.arguments,
             listened: yield(semaphore), path: path}
          end
        end
      rescue SystemCallError, EOFError # it is no such file, or was cut
        []
      end

      def text(bytes) = bytes.dup.force_encoding(Encoding::UTF_8).scrub
    end
  end
end
