# frozen_string_literal: true

require_relative "base"
require_relative "../tracing/program"

module Probescope
  module Commands
    # Prints the bpftrace programs, which can be read, changed and run without this command.
    class Script < Base
      USAGE = "script [NAME]"
      ABOUT = <<~TEXT
        Prints the bpftrace program of a command; without a name, lists all programs. The program for
        --by-request is NAME_by_request. hot_own and lines_own are the programs of hot and lines by own
        code, hot and lines those by self. stacks is the program of record. slow has a program for each
        of its thresholds, slow1ms, slow10ms and slow100ms; slow10ms is the default.
      TEXT
      EXAMPLES = <<~TEXT
        probescope script
        probescope script exceptions > exceptions.bt && sudo bpftrace -p 4711 exceptions.bt
      TEXT

      private

      def arguments(rest)
        @script, *more = rest.map { |name| name.delete_suffix(".bt") }
        super(more)
      end

      def call
        return list unless @script

        path = Tracing::Program.all[@script] or
          raise Tracing::Error.new("there is no script #{@script.inspect}", "probescope script lists them")
        puts File.read(path)
        0
      end

      # Lists each program with the question that it answers, which is its first line of comment.
      def list
        programs = Tracing::Program.all.sort
        width = programs.map { |name, _| name.size }.max + 2
        programs.each { |name, path| puts "#{name.ljust(width)}#{File.read(path)[/^ \* (.*)$/, 1]}" }
        0
      end
    end
  end
end
