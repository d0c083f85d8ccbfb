# frozen_string_literal: true

require "time"

module Probescope
  module Profile
    # The metadata of a recording: docs/schema/recording.json. A file is foreign data, so the fields that
    # are read have to be of the types that the schema has. Later versions may add fields.
    module Metadata
      TIME = /\A2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\z/
      # Larger numbers are in no recording, and not every reader has them.
      MOST = (1 << 63) - 1
      # {field => a test of its value}
      FIELDS = {
        kinds: ->(value) { list(value) { |one| kind?(one) } && value.uniq { |one| one[:name] } == value },
        begin: ->(value) { time?(value) }, end: ->(value) { time?(value) },
        seconds: ->(value) { number?(value) },
        bucket_ns: ->(value) { whole?(value) && value.positive? },
        processes: ->(value) { list(value) { |one| process?(one) } },
        looking_share: ->(value) { value.nil? || number?(value) },
        own: ->(value) { value.is_a?(Hash) && value[:by].is_a?(String) && texts?(value[:globs]) },
        lost: ->(value) { value.is_a?(Hash) && value.each_value.all? { |one| whole?(one) } },
        truncated: ->(value) { texts?(value) }, not_covered: ->(value) { texts?(value) },
        warnings: ->(value) { texts?(value) }
      }.freeze

      module_function

      # The first field with a wrong value, or nil.
      def wrong(metadata) = FIELDS.keys.find { |name| !FIELDS.fetch(name)[metadata[name]] }

      def list(value, &block) = value.is_a?(Array) && value.all?(&block)
      def texts?(value) = list(value) { |one| one.is_a?(String) }
      def number?(value) = value.is_a?(Numeric) && value.finite? && value.between?(0, MOST)
      def whole?(value) = value.is_a?(Integer) && number?(value)

      def time?(value)
        # Time takes the 31st of February for the 3rd of March.
        value.is_a?(String) && value.match?(TIME) && Time.iso8601(value).iso8601(6) == value
      rescue ArgumentError
        false
      end

      def kind?(one)
        one.is_a?(Hash) && one[:name].is_a?(String) && type?(one[:counts]) && type?(one[:weighs]) &&
          (one[:looked].nil? || type?(one[:looked]))
      end

      def type?(value) = texts?(value) && value.size == 2

      def process?(one)
        one.is_a?(Hash) && whole?(one[:pid]) && one[:pid].positive? && one[:threads].is_a?(Hash) &&
          one[:threads].each_value.all?(String) && (one[:wall_ns].nil? || whole?(one[:wall_ns]))
      end
    end
  end
end
