# frozen_string_literal: true

require "spec_helper"
require "json"
require "probescope/tracing/figure"

# tests/test_figures.py holds the wheel to the same texts.
RSpec.describe Probescope::Tracing::Figure do
  JSON.parse(File.read(File.join(Support::ROOT, "spec/fixtures/figures.json"))).each do |kind, figures|
    it "shows #{kind} rounded half up, and a dash for an unknown figure" do
      shown = figures.to_h { |figure, _| [figure, described_class.public_send(kind, figure)] }
      expect(shown).to eq(figures.to_h)
    end
  end
end
