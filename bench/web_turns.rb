# frozen_string_literal: true

require "json"
require_relative "statistics"

# Turns of a web application under load, for bench/web.rb and bench/kernel_web.rb.
module WebTurns
  include Statistics

  REQUESTS = Integer(ENV.fetch("REQUESTS", "200"))

  # Result of one turn: requests a second, and CPU seconds of the workers for a request.
  Turn = Struct.new(:per_second, :cpu)

  private

  def turn(app)
    before = app.workers_cpu
    load = app.load(requests: REQUESTS)
    raise "the load failed: #{load}" unless load.wait(within: 120).success?

    result = JSON.parse(load.out)
    Turn.new(result["per_second"], (app.workers_cpu - before) / result["requests"])
  end

  # Returns [{app => Turn}, ...], with the applications in another order each time.
  def rounds(apps, number)
    Array.new(number) { |round| apps.keys.rotate(round).to_h { |name| [name, turn(apps[name])] } }
  end

  # Returns the geometric mean of ratios, and its standard error. A single ratio has none.
  def geometric_mean(ratios)
    center, error = mean(ratios.map { |ratio| Math.log(ratio) })
    text = format("%.3f", Math.exp(center))
    ratios.size > 1 ? format("%<text>s ± %<error>.3f", text: text, error: error) : text
  end

  def middle(turns) = Turn.new(*Turn.members.map { |value| median(turns.map(&value)) })
end
