# frozen_string_literal: true

require "spec_helper"
require "probescope/tracing/table"
require "probescope/tracing/text"

RSpec.describe "Text from a target" do
  clean = Probescope::Tracing::Text.method(:clean)

  it "escapes everything that a terminal would interpret" do
    expect(clean["\e[31mred\e[0m\n\t\a"]).to eq('\e[31mred\e[0m\n\t\x07')
    expect(clean["C1 \u009b31m, order \u202e, hidden \u200b"])
      .to eq('C1 \x9b31m, order \u202e, hidden \u200b')
  end

  it "keeps unusual but harmless characters" do
    expect(clean["Grüße::日本#each \"quoted\" \\"]).to eq("Grüße::日本#each \"quoted\" \\")
  end

  it "replaces invalid bytes, and accepts nil" do
    expect(clean["a\xff\xc3".b]).to eq("a\u{fffd}\u{fffd}")
    expect(clean[nil]).to eq("")
  end

  it "is escaped in JSON, and unchanged when it is parsed" do
    row = {"class" => "\e[31m\u009b\u202e\u007f\"\n\u2028"}
    json = Probescope::Tracing::Text.json(row)
    expect(json).to match(/\A[ -~]*\z/)
    expect(JSON.parse(json)).to eq(row)
  end

  it "keeps its column of a table" do
    table = Probescope::Tracing::Table.render(%w[COUNT CLASS], [["7", "A\nB"], ["12,345", "日本"]],
                                              right: ["COUNT"])
    expect(table).to eq("COUNT   CLASS\n     7  A\\nB\n12,345  日本")
  end
end
