# frozen_string_literal: true

require_relative "error"
require_relative "tool"

module Probescope
  module Host
    # The bpftrace of this machine.
    class Bpftrace
      OLDEST = [0, 17].freeze
      INSTALL = "install it: apt install bpftrace, or dnf install bpftrace"
      # From here on bpftrace asks for capabilities and not for root.
      CAPABILITIES_SINCE = [0, 25].freeze

      attr_reader :path, :version

      # Raises Error when there is none, one that is too old, or one that others than root may change (Tool).
      def self.find
        new(Tool.find("bpftrace") || raise(missing))
      end

      def self.missing = Error.new("there is no bpftrace in #{Tool::FOLDERS.join(", ")}", INSTALL)

      def initialize(path)
        @path = path
        text = IO.popen([path, "--version"], err: File::NULL, &:read)
        @version = text[/\d+(\.\d+)+/].to_s.split(".").map(&:to_i)
        return if @version.any? && (@version <=> OLDEST) >= 0

        raise Error.new("#{path} is bpftrace #{self}, and 0.17 is the oldest that works", "update it: apt install bpftrace")
      end

      def to_s = @version.empty? ? "of an unknown version" : @version.join(".")
      def runs_without_root? = (@version <=> CAPABILITIES_SINCE) >= 0
    end
  end
end
