# frozen_string_literal: true

require_relative "error"
require_relative "path"

module Probescope
  module Host
    # The bpftrace of this machine.
    class Bpftrace
      OLDEST = [0, 17].freeze
      INSTALL = "install it: apt install bpftrace, or dnf install bpftrace"
      # From here on bpftrace asks for capabilities and not for root.
      CAPABILITIES_SINCE = [0, 25].freeze

      attr_reader :path, :version

      # Raises Error when there is none, or one that is too old.
      def self.find
        path = Path.find("bpftrace") or raise Error.new("bpftrace is not in the PATH", INSTALL)
        new(path)
      end

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
