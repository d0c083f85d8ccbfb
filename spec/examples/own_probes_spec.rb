# frozen_string_literal: true

require "shellwords"

# The tills print bpftrace commands. Each command gives an answer when it is run as printed.
RSpec.shared_examples "a till with probes of its own" do |suffix|
  let(:till) do
    target("examples/own_probes#{suffix}", loaded: false, options: suffix == ".rb" ? ["-Ilib"] : []).ready
  end

  # Starts the printed commands, which also print their maps while they run.
  def ask
    till.out.lines.grep(/^sudo bpftrace /).map do |line|
      *options, program = Shellwords.split(line).drop(2)
      maps = program.scan(/@\w+/).map { |map| "print(#{map});" }
      program += " interval:ms:200 { #{maps.join(" ")} }" unless maps.empty?
      keep(Support::Child.new("bpftrace", *options, program))
    end
  end

  it "reports its sales, the customers who cannot pay, and the time of a payment", :bpf do
    sold, refused, paid, by_path = ask
    refused.await_line(/^customer #{till.pid} with \d+ cents: (rice|salt|tea)$/)
    prices = { "rice" => 210, "salt" => 90, "tea" => 350 }
    prices.each do |item, cents|
      expect(sold.await_line(/^@cents\[#{item}\]: (\d+)$/)[1].to_i % cents).to eq(0)
    end
    [0, 1].each { |outcome| paid.await_line(/^@outcome\[#{outcome}\]: [1-9]/) }
    by_path.await_line(/^@sold\[#{till.pid}\]: [1-9]/)
    status = probescope("status", "-p", till.pid).out
    expect(status).to match(/^shop:sold +2 +yes +#{till.out[%r{usdt:(/.*?):}, 1]}$/)
                  .and match(/^latency:Till\.pay +2 +yes /)
    expect(status).to match(/^request__done +(off|unsupported) +no$/)
    expect(till.stop).to be_success
    expect(till.err).to eq("")
  end
end

RSpec.describe "examples/own_probes" do
  it_behaves_like "a till with probes of its own", ".rb"
  describe("in Python", :python) { it_behaves_like "a till with probes of its own", ".py" }
end
