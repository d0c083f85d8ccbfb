# frozen_string_literal: true

module Probescope
  module Commands
    # The options that choose the processes of a trace, for commands and for the bridge.
    module ProcessOptions
      TRUST = "also trace processes whose library belongs to another user than root and " \
              "this one; bpftrace reads it as root"

      private

      # comm: the help text of --comm.
      def process_options(parser, comm: "the processes of that name (`probescope ps` shows it)")
        parser.on("-p", "--pid PID", "a process; several: -p 1,2 or -p 1 -p 2") do |text|
          pids.concat(process_ids(text)).uniq!
        end
        parser.on("--workers", "its children too, also those that it forks later") { @workers = true }
        parser.on("--comm NAME", comm) { |text| @comm = text }
        parser.on("--trust", TRUST) { @trust = true }
      end

      def pids = @pids ||= []

      # These options as fields of an Order.
      def chosen = {pids: pids, comm: @comm, workers: @workers || false, trust: @trust || false}

      # which: the options that can choose a process, for the message.
      def check_chosen(which)
        return if pids.any? || @comm

        raise CLI::Usage.new("which process? #{which} is missing", "probescope ps")
      end
    end
  end
end
