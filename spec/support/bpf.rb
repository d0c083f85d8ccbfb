# frozen_string_literal: true

require "open3"

module Support
  # Whether bpftrace can trace here. An example with `bpf: true` requires it. Otherwise the example
  # fails in CI, and is skipped elsewhere with the reason.
  module Bpf
    module_function

    def require!
      return unless reason

      raise "BPF is needed in CI: #{reason}" if ENV["CI"]

      yield "needs BPF: #{reason}"
    end

    # Returns nil if bpftrace can trace.
    def reason
      return @reason if defined?(@reason)

      @reason = find_reason
    end

    # [0, 17] for "bpftrace v0.17.0"
    def version
      @version ||= Open3.capture2e("bpftrace", "--version").first[/\d+\.\d+/].split(".").map(&:to_i)
    end

    def find_reason
      return "not root" unless Process.uid.zero?
      return "no bpftrace in PATH" unless system("bpftrace", "--version", out: File::NULL, err: File::NULL)
      return "tracefs is not mounted on /sys/kernel/tracing" unless File.exist?("/sys/kernel/tracing/events")
      return "the kernel has no uprobes" unless File.exist?("/sys/bus/event_source/devices/uprobe/type")

      out, status = Open3.capture2e("bpftrace", "-e", "BEGIN { exit() }")
      "bpftrace does not run: #{out.lines.last}" unless status.success?
    end
  end
end
