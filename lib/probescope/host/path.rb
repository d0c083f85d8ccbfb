# frozen_string_literal: true

module Probescope
  module Host
    # Finds programs as a shell does, and hands them on by absolute path: sudo has a PATH of its
    # own.
    module Path
      module_function

      # Absolute path, or nil.
      def find(program)
        ENV.fetch("PATH", "").split(File::PATH_SEPARATOR).reject(&:empty?)
           .map { |folder| File.expand_path(program, folder) }
           .find { |path| File.file?(path) && File.executable?(path) }
      end
    end
  end
end
