# frozen_string_literal: true

require "spec_helper"
require "probescope/tracing/shortened"
require "probescope/tracing/terminal"
require "stringio"

RSpec.describe "Fitting a terminal's width" do
  def shortened(text, width) = Probescope::Tracing::Shortened.text(text, width)

  it "cuts paths in their middle, and keeps the file's name and the line" do
    expect(shortened("app/models/concerns/order.rb:12", 20)).to eq("app/mod…/order.rb:12")
    expect(shortened("app/models/concerns/order.rb:12", 31)).to eq("app/models/concerns/order.rb:12")
    expect(shortened("app/a_very_long_name_of_a_file.rb:12", 16).length).to eq(16)
  end

  it "cuts other names in their middle, also names with wide characters" do
    expect(shortened("Orders::Checkout#charge_the_customer", 17)).to eq("Orders::…customer")
    cut = shortened("注文" * 20, 17)
    expect(Probescope::Tracing::Table.width(cut)).to be_between(15, 17)
  end

  it "makes the widest columns narrower first, figures never, " \
     "and none narrower than #{Probescope::Tracing::Display::LEAST_WIDTH}" do
    widths = Probescope::Tracing::Shortened.method(:widths)
    expect(widths.call([8, 40, 90], [false, true, true], 100)).to eq([8, 40, 52])
    expect(widths.call([8, 40, 90], [false, true, true], 60)).to eq([8, 26, 26])
    expect(widths.call([8, 40, 90], [false, true, true], 20)).to eq([8, 16, 16])
    expect(widths.call([8, 4], [false, false], 5)).to eq([8, 4])
  end

  def terminal(color: "auto", tty: true, **env)
    io = StringIO.new
    io.define_singleton_method(:tty?) { tty }
    io.define_singleton_method(:winsize) { [24, 100] }
    Probescope::Tracing::Terminal.new(io, color: color, env: env.transform_keys(&:to_s))
  end

  it "takes the width from the terminal or from COLUMNS, and has none without a terminal" do
    expect(terminal.width).to eq(100)
    expect(terminal(COLUMNS: "132").width).to eq(132)
    expect(terminal(COLUMNS: "7").width).to eq(Probescope::Tracing::Display::NARROWEST)
    expect(terminal(tty: false).width).to be_nil
  end

  it "has colours on a terminal, unless NO_COLOR or --color never disables them" do
    painted = {{} => true, {NO_COLOR: "1"} => false, {TERM: "dumb"} => false, {color: "never"} => false,
               {tty: false} => false, {tty: false, color: "always"} => true,
               {NO_COLOR: "1", color: "always"} => true}
    painted.each do |given, colored|
      expect(terminal(**given).paint("50 %", :hot) != "50 %").to eq(colored), given.inspect
    end
    expect([nil, 0.01, 0.05, 0.2].map { |share| Probescope::Tracing::Terminal.heat(share) })
      .to eq([nil, nil, :warm, :hot])
  end
end
