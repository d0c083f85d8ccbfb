# frozen_string_literal: true

require_relative "error"
require_relative "tool"

module Probescope
  module Tracing
    # The bpftrace that is installed on this machine.
    class Bpftrace
      OLDEST = [0, 17].freeze
      INSTALL = "install it: apt install bpftrace, or dnf install bpftrace"
      # From this version on, bpftrace checks for capabilities and not for root.
      CAPABILITIES_SINCE = [0, 25].freeze
      # From this version on, `-p` binds software events to the first thread of the process.
      ONE_THREAD_SINCE = [0, 24].freeze
      # From this version on, `-p` leaves out what tracepoints report while another process is on the CPU
      # (bpftrace#3800).
      FILTERS_SINCE = [0, 24].freeze
      # The initial PID namespace. In any other namespace, bpftrace up to 0.22 reports the numbers
      # of the initial one. bpftrace 0.23.0 to 0.24.1 swaps `pid` and `tid` (bpftrace#4813), so that
      # each thread's events carry the thread's number instead of the process's.
      INITIAL_PIDS = "pid:[4026531836]"
      OWN_NUMBERS_SINCE = [0, 23].freeze
      RIGHT_NUMBERS_SINCE = [0, 24, 2].freeze

      attr_reader :path, :version

      # Raises Error when there is no bpftrace, when it is too old, or when a user other than root
      # may change it (Tool).
      def self.find
        new(Tool.find("bpftrace") || raise(missing))
      end

      # Whether every version of bpftrace reports the same numbers of processes here.
      def self.initial_pids? = File.readlink("/proc/self/ns/pid") == INITIAL_PIDS

      def self.missing = Error.new("there is no bpftrace in #{Tool::FOLDERS.join(", ")}", INSTALL)

      def initialize(path)
        @path = path
        text = IO.popen([path, "--version"], err: File::NULL, &:read)
        @version = text[/\d+(\.\d+)+/].to_s.split(".").map(&:to_i)
        return if @version.any? && (@version <=> OLDEST) >= 0

        raise Error.new("#{path} is bpftrace #{self}, and 0.17 is the oldest that works",
                        "update it: apt install bpftrace")
      end

      def to_s = @version.empty? ? "of an unknown version" : @version.join(".")

      # What bpftrace's `pid` is: :right, :outer (the process's number in the initial PID
      # namespace), or :thread (the thread's number).
      def numbers
        return :right if self.class.initial_pids? || (@version <=> RIGHT_NUMBERS_SINCE) >= 0

        (@version <=> OWN_NUMBERS_SINCE).negative? ? :outer : :thread
      end

      # Whether `-p` leaves out the kernel's events that come while another process is on the CPU.
      def filters? = (@version <=> FILTERS_SINCE) >= 0

      def runs_without_root? = (@version <=> CAPABILITIES_SINCE) >= 0
    end
  end
end
