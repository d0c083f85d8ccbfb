# frozen_string_literal: true

require_relative "error"

module Probescope
  module Host
    # What bpftrace complains of, in words of ours, with its own behind them. python/probescope/command/complaint.py has the same.
    module Complaint
      CONTAINER = "run it as root on the host, or in a container with --pid=host --cap-add SYS_ADMIN --cap-add SYS_PTRACE " \
                  "--security-opt seccomp=unconfined"
      # What bpftrace says, by 0.17 to 0.27 => [what that means, the next step]; the first that fits.
      MEANINGS = {
        /running as the root user|Missing CAP_\w+ capability/ =>
          ["bpftrace refuses to run without root's privilege", "run it as root (sudo)"],
        /lockdown/i => ["the kernel is locked down, and forbids BPF", "boot it without lockdown=confidentiality"],
        /Operation not permitted|Permission denied/ =>
          ["the kernel forbids BPF here: a capability is missing, or seccomp or a user namespace of a container is in the way", CONTAINER],
        /Argument list too long|Cannot allocate memory/ =>
          ["the kernel has no memory for so many rows in bpftrace's maps", "PROBESCOPE_MAP_KEYS=4096 makes them smaller"],
        /Too many open files/ => ["bpftrace may not open so many files", "ulimit -n 65536"],
        /No such process/ => ["the process ended while bpftrace attached to it", "`probescope ps` lists those that can be traced"],
        /No probes to attach|no valid attach points|usdt target file/ =>
          ["bpftrace finds no probes: the process's library was replaced on disk, or is stripped of its notes", "restart the process"],
        /tracefs|debugfs|available_events/ => ["bpftrace finds no tracefs", "mount -t tracefs tracefs /sys/kernel/tracing"],
        /attach/ => ["the kernel does not let bpftrace attach", CONTAINER],
        /loading program|BPF object/i =>
          ["the kernel does not take bpftrace's program: a privilege is missing, or it is too old for it", CONTAINER]
      }.freeze
      # What it says where all is well, too.
      NOISE = /RLIMIT_MEMLOCK|\AWARNING|\AAttach(ing|ed) \d+ probe|\A@\w*(\[|:)/
      MOST_LINES = 20

      module_function

      # An Error for that text of bpftrace's. what: what it was to do. next_step: where the text is none that we know.
      def error(text, what, next_step)
        lines = lines(text)
        meaning, step = MEANINGS.find { |pattern, _| lines.any?(pattern) }&.last
        said = lines.empty? ? "it ended by itself" : "it says: #{shown(lines).join("; ")}"
        Error.new("bpftrace #{what}#{": #{meaning}" if meaning}; #{said}", step || next_step)
      end

      # Without noise.
      def lines(text)
        text.to_s.lines.map(&:strip).reject { |line| line.empty? || line.match?(NOISE) }
      end

      def shown(lines)
        more = lines.size - MOST_LINES
        more.positive? ? [*lines.first(MOST_LINES), "and #{more} more lines"] : lines
      end
    end
  end
end
