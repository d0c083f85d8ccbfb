# frozen_string_literal: true

require_relative "../version"
require_relative "bpftrace"
require_relative "error"

module Probescope
  module Tracing
    # A bug of probescope, with the data that an issue needs.
    class Crash < Error
      FOLDER = File.expand_path("..", __dir__)
      MESSAGE_BYTES = 300

      # what: as .of describes it. where: the process that failed, "the helper".
      def initialize(what, where = nil)
        super("this is a fault of probescope#{" (#{where})" if where}: #{what}",
              "report it as an issue of probescope's repository, with the line above and this one: " \
              "#{Crash.versions}")
      end

      # The exception's class and message, and the innermost line of probescope's own code.
      def self.of(exception)
        line = exception.backtrace.to_a.find { |one| one.start_with?(FOLDER) }
        # Only the first line: the rest is advice of Ruby (did_you_mean, error_highlight).
        message = exception.message.to_s.scrub.lines.first.to_s.chomp.byteslice(0, MESSAGE_BYTES).scrub("")
        "#{exception.class}: #{message}#{" at #{line.delete_prefix("#{FOLDER}/")}" if line}"
      end

      def self.versions
        system = File.read("/proc/sys/kernel/osrelease").strip
        "probescope #{VERSION}, Ruby #{RUBY_VERSION}, Linux #{system}, bpftrace #{bpftrace}"
      rescue SystemCallError
        "probescope #{VERSION}, Ruby #{RUBY_VERSION} on #{RUBY_PLATFORM}"
      end

      def self.bpftrace
        Bpftrace.find.to_s
      rescue Error => e
        "(#{e.message})"
      end
    end
  end
end
