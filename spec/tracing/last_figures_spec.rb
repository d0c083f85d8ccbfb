# frozen_string_literal: true

require "spec_helper"
require "support/replay"
require "probescope/tracing/lost"

# bpftrace prints its maps last. GIVEN what it printed once without the maps, as if its output had
# been cut off.
RSpec.describe "A stream without bpftrace's last figures" do
  recordings = Support::Recordings
  warning = "probescope: bpftrace ended without its last figures: " \
            "more events may be lost than are counted\n"

  %w[flow stat light].product(recordings.versions).each do |program, version|
    it "says so, in gem and wheel: #{program} of bpftrace #{version}" do
      head, answers = recordings.read(version, program).find { |one, _| one[:recording] == "one" }
      cut = answers.reject { |answer| answer[:is] == "output" && answer[:line].include?('"type": "map"') }
      expect(cut.size).to be < answers.size
      [answers, cut].each do |told|
        texts = [Support::Replay.gem(head, told), Support::Replay.wheel(head, program, told)].map(&:text)
        expect(texts).to all(told == cut ? include(warning) : satisfy { |text| !text.include?(warning) })
      end
    end
  end
end
