# frozen_string_literal: true

# Generated from providers/tracing.yml by `rake generate`. Do not edit.
module Probescope
  module Tracing
    # Messages of bpftrace, with their meaning and the next step.
    module Complaints
      CONTAINER = "run it as root on the host, or in a container with --pid=host --cap-add SYS_ADMIN --cap-add " \
                  "SYS_PTRACE --security-opt seccomp=unconfined"
      # The first pattern that matches counts.
      MEANINGS = [
        [/running as the root user|Missing CAP_\w+ capability/,
         "bpftrace refuses to run without root's privilege",
         "run it as root (sudo)"],
        [/(?i)lockdown/,
         "the kernel is locked down, and forbids BPF",
         "boot it without lockdown=confidentiality"],
        [/Operation not permitted|Permission denied/,
         "the kernel forbids BPF here: a capability is missing, or seccomp or a user namespace of a container prevents it",
         CONTAINER],
        [/Argument list too long|Cannot allocate memory/,
         "the kernel has no memory for so many rows in bpftrace's maps",
         "PROBESCOPE_MAP_KEYS=4096 makes them smaller"],
        [/Too many open files/,
         "bpftrace may not open so many files",
         "ulimit -n 65536"],
        [/No such process/,
         "the process ended while bpftrace attached to it",
         "`probescope ps` lists the processes that can be traced"],
        [/(?i)tracepoints? not found/,
         "this kernel does not have a tracepoint of the program",
         "run a kernel with CONFIG_FTRACE=y and CONFIG_FTRACE_SYSCALLS=y"],
        [/No probes to attach|no valid attach points|usdt target file/,
         "bpftrace finds no probes: the process's library was replaced on disk, or is stripped of its notes",
         "restart the process"],
        [/tracefs|debugfs|available_events/,
         "bpftrace finds no tracefs",
         "mount -t tracefs tracefs /sys/kernel/tracing"],
        [/attach/,
         "the kernel does not let bpftrace attach",
         CONTAINER],
        [/(?i)loading program|BPF object/,
         "the kernel does not take bpftrace's program: a privilege is missing, or the kernel is too old for the program",
         CONTAINER]
      ].freeze
      # Lines that bpftrace also prints when nothing is wrong.
      NOISE = /RLIMIT_MEMLOCK|\AWARNING|\AAttach(ing|ed) \d+ probe|\A@\w*(\[|:)/
    end
  end
end
