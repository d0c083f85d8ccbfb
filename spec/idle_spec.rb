# frozen_string_literal: true

require "support/idle_instructions"

# The cost without a tracer, in instructions instead of nanoseconds. `bench/idle.rb` prints the
# figures.
RSpec.describe "A process that nobody traces", :slow, :valgrind do
  before { skip "valgrind is not installed" unless system("sh", "-c", "command -v valgrind >/dev/null") }

  Support::IdleInstructions::WORKS.each do |what, work|
    # .ci/full has the others: each computes for half a minute.
    rest = {full: "another one of its kind"} unless what == "a raise"
    it "spends no more instructions on #{what} with the library loaded", **rest.to_h do
      # Addresses change how many slots Ruby searches in its own hash tables, so two runs of the
      # same program sometimes differ by more.
      attempts do
        plain, loaded = [false, true].map { |with| Support::IdleInstructions.of(work, loaded: with) }
        expect(loaded).to be <= plain * 1.001
      end
    end
  end
end
