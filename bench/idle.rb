# frozen_string_literal: true

# Instructions that Ruby spends while nobody listens, without the library and with it, as
# spec/idle_spec.rb holds them. Prints what docs/performance.md says.
#
#   bundle exec ruby bench/idle.rb
require_relative "../spec/support/idle_instructions"

Support::IdleInstructions::WORKS.each do |what, work|
  plain, loaded = [false, true].map { |with| Support::IdleInstructions.of(work, loaded: with) }
  puts format("- %<what>s: %<plain>.1f instructions plain, %<loaded>.1f loaded (%<more>+.4f%%)",
              what: what, plain: plain, loaded: loaded, more: ((loaded / plain) - 1) * 100)
  $stdout.flush
end
