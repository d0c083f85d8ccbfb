# frozen_string_literal: true

module Support
  # For figures that are held against a clock. Another program on the same CPUs, or on another virtual machine beside this one,
  # spoils a measurement now and then; a fault of ours spoils every one. So what fails is measured again, and fails when all
  # attempts did.
  module Attempts
    def attempts(count = 3)
      failures = []
      begin
        yield
      rescue RSpec::Expectations::ExpectationNotMetError => e
        failures << e.message.strip.tr("\n", " ")
        raise e, "#{count} attempts failed:\n#{failures.join("\n")}" if failures.size == count

        stop_processes
        retry
      end
    end
  end
end
