# frozen_string_literal: true

module Probescope
  module Otel
    # A W3C traceparent. trace_id, span_id: binary strings.
    TraceParent = Struct.new(:trace_id, :span_id, :sampled) do
      # Returns nil without a valid traceparent.
      def self.parse(text)
        trace, span, flags = text.match(/\A00-(\h{32})-(\h{16})-(\h\h)\z/)&.captures
        return if trace.nil? || trace.count("0") == 32 || span.count("0") == 16

        new([trace].pack("H*"), [span].pack("H*"), flags.hex.anybits?(1))
      end
    end
  end
end
