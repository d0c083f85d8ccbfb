# frozen_string_literal: true

require "json"
require "probescope/tracing/own"

RSpec.describe Probescope::Tracing::Own do
  cases = JSON.parse(File.read(File.expand_path("../fixtures/own.json", __dir__)))
  frame_class = Struct.new(:path, :own, :what)

  cases.fetch("globs").each do |glob, path, matches|
    it "#{matches ? "matches" : "does not match"} #{path} by #{glob}" do
      expect(described_class.pattern(glob).match?(path)).to be(matches)
    end
  end

  # [[frame, number of its caller, weight], ...]
  define_method(:paths) do |stacks|
    stacks.each_with_object([]) do |frames, all|
      frames.each_with_index do |(path, own, weight, what), i|
        all << [frame_class.new(path, own, !what.nil?), (all.size - 1 if i.positive?), weight]
      end
    end
  end

  cases.fetch("choices").each do |one|
    it "chooses #{one["name"]}" do
      seen = paths(one["paths"])
      own = described_class.choose(one.fetch("asked", []), seen, one.fetch("entry", []))
      expect(own.by.to_s).to eq(one["by"])
      expect(seen.map(&:first).select { |frame| own.own?(frame) }.map(&:path)).to eq(one["own"])
      expect(own.unmatched).to eq(one.fetch("unmatched", []))
      expect(own.globs).to eq(one["globs"]) if one["globs"]
    end
  end
end
