# frozen_string_literal: true

module Support
  # For figures that are held against a clock. Another program on the same CPUs, or on another
  # virtual machine beside this one, spoils a measurement now and then; a fault of ours spoils every
  # one. So what fails is measured again, and fails when all attempts did. An attempt that failed is
  # written down: bin/test tells of it.
  module Attempts
    def attempts(count = 3)
      failures = []
      begin
        result = yield
        note_repeated(failures) if failures.any?
        result
      rescue RSpec::Expectations::ExpectationNotMetError => e
        failures << e.message.strip.tr("\n", " ")
        raise e, "#{count} attempts failed:\n#{failures.join("\n")}" if failures.size == count

        stop_processes
        retry
      end
    end

    # What the block answers for the first number of seconds that gives so many samples, or for the
    # last one: on a busy machine samples are few, and each of them weighs much. The block: seconds
    # => rows of `hot`.
    def sampled(least, lengths)
      lengths.each_with_index do |seconds, i|
        rows = yield seconds
        return rows if i == lengths.size - 1 || rows.sum { |row| row["samples"] } >= least
      end
    end

    private

    def note_repeated(failures)
      return unless (file = ENV["PROBESCOPE_REPEATED"])

      example = RSpec.current_example
      File.write(file, "#{example.location} # #{example.full_description}: #{failures.join(" / ")}\n",
                 mode: "a")
    end
  end
end
