# frozen_string_literal: true

# Counts the instructions of Ruby without a tracer, with and without the library, like
# spec/idle_spec.rb. Prints the figures for docs/performance.md.
#
#   bundle exec ruby bench/idle.rb
require_relative "../spec/support/idle_instructions"

Support::IdleInstructions::WORKS.each do |what, work|
  plain, loaded = [false, true].map { |with| Support::IdleInstructions.of(work, loaded: with) }
  puts format("- %<what>s: %<plain>.1f instructions without probescope, " \
              "%<loaded>.1f with it loaded (%<more>+.4f%%)",
              what: what, plain: plain, loaded: loaded, more: ((loaded / plain) - 1) * 100)
  $stdout.flush
end
