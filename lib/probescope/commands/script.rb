# frozen_string_literal: true

require_relative "base"
require_relative "../host/program"

module Probescope
  module Commands
    # The bpftrace programs, to read, to change and to run without this command.
    class Script < Base
      USAGE = "script [NAME]"
      ABOUT = "Prints a bpftrace program; without a name, lists them.\n"
      EXAMPLES = <<~TEXT
        probescope script
        probescope script exceptions > exceptions.bt && sudo bpftrace -p 4711 exceptions.bt
      TEXT
      FILES = Dir[Host::Program.path("*.bt")].to_h { |path| [File.basename(path, ".bt"), path] }.freeze

      private

      def arguments(rest)
        @script, *more = rest.map { |name| name.delete_suffix(".bt") }
        super(more)
      end

      def call
        return list unless @script

        path = FILES[@script] or raise Host::Error.new("there is no script #{@script.inspect}", "probescope script lists them")
        puts File.read(path)
        0
      end

      # With the question that each one answers, which is its first line of comment.
      def list
        width = FILES.keys.map(&:size).max + 2
        FILES.sort.each { |name, path| puts "#{name.ljust(width)}#{File.read(path)[/^ \* (.*)$/, 1]}" }
        0
      end
    end
  end
end
