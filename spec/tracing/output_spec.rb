# frozen_string_literal: true

require "spec_helper"
require "probescope/tracing/output"

RSpec.describe "Reading bpftrace's JSON" do
  def read(*lines) = lines.each_with_object(Probescope::Tracing::Output.new) { |line, output| output << line }

  it "collects maps, with tuples as values" do
    output = read('{"type": "map", "data": {"@row": {"7,A,/a.rb,1": ["A","/a.rb",1]}}}',
                  '{"type": "map", "data": {"@raised": {"7,A,/a.rb,1": 5}}}')
    expect(output.maps).to eq("row" => {"7,A,/a.rb,1" => ["A", "/a.rb", 1]}, "raised" => {"7,A,/a.rb,1" => 5})
  end

  it "restores the bytes that bpftrace prints as \\uffffffXX" do
    output = read('{"type": "map", "data": {"@row": {"k": ["caf\uffffffc3\uffffffa9"]}}}')
    expect(output.maps["row"]["k"]).to eq(["café"])
  end

  it "keeps a name that contains a backslash and these letters" do
    output = read('{"type": "map", "data": {"@row": {"k": ["a\\\\uffffffc3\\n"]}}}')
    expect(output.maps["row"]["k"]).to eq(["a\\uffffffc3\n"])
  end

  it "makes valid UTF-8 of the rest" do
    output = read('{"type": "map", "data": {"@row": {"k": ["\uffffffff\uffffffc3"]}}}',
                  %({"type": "map", "data": {"@b": {"k": "\xff"}}}).b)
    expect(output.maps["row"]["k"].first).to be_valid_encoding
    expect(output.maps["b"]["k"]).to be_valid_encoding
  end

  it "keeps keys apart that differ only in bytes that are no UTF-8" do
    output = read('{"type": "map", "data": {"@n": {"7,a\uffffffff": 1, "7,a\ufffffffe": 2, "7,é": 3}}}',
                  %({"type": "map", "data": {"@file": {"7,a\xff": "a\xff", "7,a\xfe": "a\xfe"}}}).b)
    expect(output.maps["n"].values).to eq([1, 2, 3])
    expect(output.maps["n"].keys.last).to eq("7,é")
    expect(output.maps["file"].transform_keys { |key| output.maps["n"][key] })
      .to eq(1 => "a\ufffd", 2 => "a\ufffd")
  end

  it "counts lost events in the wording of each version" do
    expect(read('{"type": "lost_events", "data": {"events": 3}}',
                '{"type": "lost_events", "count": 4, "data": {"events": 4}}').lost_events).to eq(7)
  end

  it "ignores everything else" do
    expect(read("", "Attaching 3 probes...", '{"type": "attached_probes", "data": {"probes": 3}}', "[1]",
                '{"type": "ma').maps).to be_empty
  end
end
