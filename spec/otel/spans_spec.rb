# frozen_string_literal: true

require "spec_helper"
require "probescope/otel/assembly"
require "probescope/otel/lines"
require "probescope/otel/spans"

RSpec.describe Probescope::Otel::Spans do
  sdk = OpenTelemetry::SDK
  subject(:spans) do
    described_class.new(sdk::Resources::Resource.create, sdk::InstrumentationScope.new("spec", "1"))
  end

  event = Probescope::Otel::Lines::SLOW.event

  # A call whose event came at `at`; times in ms. span: the application's current span.
  define_method(:node) do |id, at, elapsed, span, *callees, flags: "01"|
    one = event.new
    {span_id: id, at: at * 1_000_000, elapsed: elapsed * 1_000_000, self: 0, function: 1, outcome: 0,
     text: format("00-%032x-%016x-%s", 9, span, flags)}.each { |name, value| one[name] = value }
    Probescope::Otel::Assembly::Node.new(one, callees)
  end

  # Returns {id => [id of the parent, start, end]}, in ms.
  def made(tree)
    spans.of(tree, {}, 0).to_h do |span|
      [span.span_id.unpack1("Q>"),
       [span.parent_span_id.unpack1("Q>"), span.start_timestamp / 1_000_000, span.end_timestamp / 1_000_000]]
    end
  end

  it "starts a call before its callees, even if its event was late" do
    tree = node(1, 130, 100, 7, node(2, 60, 50, 7, node(3, 40, 38, 7)))
    expect(made(tree)).to eq(1 => [7, 2, 102], 2 => [1, 2, 52], 3 => [2, 2, 40])
  end

  it "gives a caller no child with another current span, and none in a trace that is not sampled" do
    tree = node(1, 100, 100, 7, node(2, 60, 50, 8), node(3, 80, 10, 8, node(4, 80, 5, 7), flags: "00"))
    expect(made(tree)).to eq(1 => [7, 0, 100], 2 => [8, 10, 60], 4 => [7, 75, 80])
    expect(spans.unsampled).to eq(1)
  end
end
