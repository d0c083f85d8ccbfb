# frozen_string_literal: true

require_relative "bounds"
require_relative "elf"
require_relative "mappings"

module Probescope
  module Tracing
    # The probes that an application defines at run time (Provider, Latency), read from the
    # libraries that it maps for them. Runs in the helper's reader (Foreign).
    module OwnProbes
      # File names as ext/libstapsdt/provider_file.c makes them.
      LIBRARY = %r{/probescope(-\d+)?/[^/]+-\h{16}(-\d+)?\.so( \(deleted\))?\z|\A/memfd:libstapsdt:}n

      module_function

      # [{name: "shop:checkout", arguments: 2, listened:, path:}, ...], sorted by name. listened:
      # the block's value for the semaphore's address. path: the file by which a tracer reaches
      # every process with the same provider, nil when there is none. Raises SystemCallError.
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
      rescue SystemCallError, EOFError # the file is no such library, or is truncated
        []
      end

      def text(bytes) = bytes.dup.force_encoding(Encoding::UTF_8).scrub
    end
  end
end
