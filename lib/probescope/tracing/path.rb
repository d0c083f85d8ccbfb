# frozen_string_literal: true

module Probescope
  module Tracing
    # Finds programs in PATH as a shell does. Programs are passed on by absolute path, because sudo
    # has a PATH of its own.
    module Path
      module_function

      # Returns the absolute path, or nil.
      def find(program)
        ENV.fetch("PATH", "").split(File::PATH_SEPARATOR).reject(&:empty?)
           .map { |folder| File.expand_path(program, folder) }
           .find { |path| File.file?(path) && File.executable?(path) }
      end
    end
  end
end
