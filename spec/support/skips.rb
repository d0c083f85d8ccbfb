# frozen_string_literal: true

require "date"
require "json"

module Support
  # In the gate (.ci/run sets PROBESCOPE_GATE) a test may be skipped only for a reason that
  # .ci/skips.json lists. tests/conftest.py has the same rule.
  #
  #   ruby spec/support/skips.rb REASON     says that something is skipped; exit status 1 when it
  #                                         must not be
  module Skips
    FILE = File.expand_path("../../.ci/skips.json", __dir__)
    MOST = 10

    # what: a part of the reason that the test gives. until: the last day, after which the test
    # fails again.
    Entry = Struct.new(:what, :because, :until, keyword_init: true) do
      def last_day = Date.iso8601(self.until)
      def covers?(reason, today) = reason.include?(what) && today <= last_day
    end

    module_function

    def all(file = FILE)
      JSON.parse(File.read(file), symbolize_names: true).map { |entry| Entry.new(**entry) }
    end

    def allowed?(reason, today: Date.today)
      !ENV["PROBESCOPE_GATE"] || all.any? { |entry| entry.covers?(reason, today) }
    end

    # For Rake tasks.
    def tell(reason)
      puts "skipped: #{reason}"
      $stdout.flush
      abort "FAILED: .ci/skips.json does not list it" unless allowed?(reason)
    end

    # Replaces RSpec's `skip` in examples and hooks.
    module InExamples
      def skip(reason)
        unless Skips.allowed?(reason)
          raise "skipped in the gate, and .ci/skips.json does not list it: #{reason}"
        end

        super
      end
    end
  end
end

Support::Skips.tell(ARGV.join(" ")) if $PROGRAM_NAME == __FILE__
