# frozen_string_literal: true

require "open3"
require_relative "bpftrace_process"
require_relative "tool"

module Probescope
  module Tracing
    # Runs a program in bpftrace that needs what every program of ours needs: a map, a probe in user
    # space (BEGIN is one) and the verifier. Runs in the helper.
    module Trial
      PROGRAM = "BEGIN { @tried = 1; exit(); }"
      SECONDS = 30
      KILLED = 128 + Signal.list.fetch("KILL")

      module_function

      # Returns what bpftrace complains of; nil when it has run the program.
      def run
        out, status = Open3.capture2e(Tool::ENVIRONMENT, *limited, "-e", PROGRAM,
                                      unsetenv_others: true, stdin_data: "")
        return if status.success? && out.include?("@tried")

        out = out.force_encoding(Encoding::UTF_8).scrub
        status.exitstatus == KILLED ? "#{out}it did not end within #{SECONDS} s" : out
      end

      def limited
        timeout = Tool.find("timeout")
        [*([timeout, "--signal=KILL", SECONDS.to_s] if timeout), *BpftraceProcess.command]
      end
    end
  end
end
