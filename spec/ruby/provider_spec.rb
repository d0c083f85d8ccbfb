# frozen_string_literal: true

require_relative "../support/own_probes"

# An application's own probes, traced with a real bpftrace.
RSpec.describe "Probescope::Provider" do
  include_context "with probes of their own"

  let(:shop) { start("-r#{Support::ROOT}/spec/ruby/support/shop.rb", "-e", "") }

  def ask(process, command, pattern)
    process.puts(command)
    process.await_line(pattern)
  end

  it "passes arguments of every type to bpftrace, and counts invalid ones", :bpf do
    expect(shop.await_line(/^ready (.*)/)[1]).to start_with("#{directory}/probescope/shop-")
    expect(ask(shop, "asked", /^asked (\d+) dropped (\d+)/).captures).to eq(%w[0 0])
    one = tracer(<<~BT, pid: shop.pid)
      usdt:*:shop:checkout { printf("<%s> %ld %lx\\n", str(arg0), arg1, arg2); }
      usdt:*:shop:sizes { printf("%d %u %d %u %d %u\\n", arg0, arg1, arg2, arg3, arg4, arg5); }
      usdt:*:shop:many { printf("many %lx %lx\\n", arg0, arg5); }
      usdt:*:shop:plain { @plain = count(); }
    BT
    one.await_line(/^many f{15}f f{15}a$/)
    one.await_line(/^<basket> -3 3ff8000000000000$/)
    one.await_line(/^<symbol> 4611686018427387904 4000000000000000$/)
    one.await_line(/^<> \d+ 8000000000000000$/)
    one.await_line(/^<part> 0 0$/)
    one.await_line(/^-128 255 -32768 65535 -2147483648 4294967295$/)
    expect(ask(shop, "within", /^within (.*)/)[1]).to eq("mine thrown false false")
    one.stop(:INT)
    expect(one.out).not_to match(/wrong|not enough/)
    asked, all, checkout = ask(shop, "asked", /^asked ([1-9]\d*) dropped (\d+) (\d+)/).captures.map(&:to_i)
    expect([asked, checkout, all - checkout]).to all(be > 0)
  end

  it "passes twelve arguments, which bpftrace reads from 0.24 on", :bpf do
    version = Support::Bpf.version
    skip "bpftrace #{version.join(".")} knows no arg6" if (version <=> [0, 24]).negative?

    shop.await_line(/^ready/)
    tracer('usdt:*:shop:many { printf("%lx %lx\\n", arg6, arg11); }', pid: shop.pid)
      .await_line(/^f{15}9 f{15}4$/)
  end

  it "can be unloaded and loaded again, and also fires in a forked child", :bpf do
    path = shop.await_line(/^ready (.*)/)[1]
    ask(shop, "unload", /^unloaded true nil$/)
    expect(Dir.children("#{directory}/probescope")).to be_empty
    ask(shop, "load", /^loaded true$/)
    forked = ask(shop, "fork", /^forked (\d+)$/)[1]
    tracer("usdt:#{path}:shop:plain { printf(\"from %d\\n\", pid); }").await_line(/^from #{forked}$/)
    shop.close_stdin
    expect(shop.wait).to be_success
    await("no file") { Dir.empty?("#{directory}/probescope") }
  end

  it "raises in development for invalid arguments at the call, and for invalid definitions" do
    source = <<~RUBY
      def said = yield.then { |value| p value } rescue puts("\#{$!.class}: \#{$!.message.lines.first}")
      Shop = Probescope::Provider.define("shop") { probe :checkout, :string, :uint8 }
      checkout = Shop[:checkout]
      said { checkout.fire("right", 255) }
      said { checkout.fire("wrong", 256) }
      said { checkout.fire(1, 1) }
      said { checkout.fire("one") }
      said { checkout.fire { raise "never called" } }
      said { checkout.dropped }
      said { Probescope::Provider.define("a b") }
      said { Probescope::Provider.define("shop") { probe :"x y" } }
      said { Probescope::Provider.define("shop") { probe :x, :integr } }
      said { Probescope::Provider.define("shop") { probe :x; probe :x } }
      said { Probescope::Probe.new }
    RUBY
    development = printed(source, RACK_ENV: "development")
    expect(development[0..8]).to match(
      ["false",
       /^TypeError: argument 1 of probe checkout has to be an Integer that fits uint8, not 256/,
       /^TypeError: argument 0 .* a String/,
       /^ArgumentError: probe checkout takes 2 arguments, not 1/,
       "false", "3", /^Probescope::Error: no name/, /^Probescope::Error: no name/,
       /^Probescope::Error: no such type: :integr/]
    )
    expect(development[9..])
      .to match([/^Probescope::Error: probe x of shop is there already/, /^NoMethodError: /])
    expect(printed(source, RACK_ENV: "production")[0..5]).to eq(%w[false false false false false 0])
    expect(printed(source, RACK_ENV: "production", PROBESCOPE_STRICT: "1")[1]).to start_with("TypeError")
  end

  it "calls no method of its arguments, whatever they are, and takes only the integers of a type" do
    development = printed(<<~'RUBY', PROBESCOPE_STRICT: "1")
      def said = yield.then { |value| p value } rescue puts("#{$!.class}: #{$!.message}")
      module Hostile
        %i[inspect to_s to_str to_sym to_i to_int to_f to_a to_ary to_hash hash == ! class name
           method_missing respond_to_missing?].each { |name| define_method(name) { |*| exit!(9) } }
      end
      a = Probescope::Provider.define("shop") { probe :a, :string, :float }[:a]
      said { a.fire(Class.new(String) { include Hostile }.new("text"), 1) }
      said { a.fire(Object.new.extend(Hostile), 1) }
      said { a.fire(BasicObject.new, 1) }
      texts = ["a\0b", "\xff", "caf\u00e9".encode("UTF-16LE"), "", "a" * 5000, :"a\0b"]
      texts.each { |text| said { a.fire(text, Float::NAN) } }
      said { a.fire("", 2**64) }
      said { a.fire("", -(2**5000)) }
      said { a.fire(name: 1) }
      { int8: -128..127, uint8: 0..255, int16: -2**15..2**15 - 1, uint16: 0..2**16 - 1,
        int32: -2**31..2**31 - 1, uint32: 0..2**32 - 1,
        int64: -2**63..2**63 - 1, uint64: 0..2**64 - 1,
        integer: -2**63..2**63 - 1, unsigned: 0..2**64 - 1 }.each do |type, range|
        one = Probescope::Provider.define("of") { probe :one, type }[:one]
        one.fire(range.begin)
        one.fire(range.end)
        [range.begin - 1, range.end + 1, true, nil, 1.0].each do |value|
          one.fire(value) && puts("#{type} #{value}") rescue TypeError
        end
        puts "#{type} #{one.dropped}" if one.dropped != 5
      end
      names = ["a\0b", "\xff", "a\n", "a".encode("UTF-16LE"), "", "a" * 128, nil]
      names.each { |name| said { Probescope::Provider.new(name) } }
      said { Probescope::Provider.new("a").probe("b\0c") }
      said { Probescope::Provider.new("a").probe("b\xff") }
      said { Probescope::Provider.new("a").probe(:b, *[:integer] * 13) }
    RUBY
    wrong = "TypeError: argument %d of probe a has to be %s, not %s"
    text = "a String, a Symbol or nil"
    objects = %w[Object BasicObject].map { |name| format(wrong, 0, text, "an instance of #{name}") }
    integers = [65, 5001].map { |bits| format(wrong, 1, "a Float", "an Integer of #{bits} bits") }
    expect(development[0..11]).to eq(["false", *objects, *["false"] * 6, *integers,
                                      "ArgumentError: probe a takes 2 arguments, not 1"])
    expect(development[12..-2].map { |line| line[/\A[^"]*/] }).to eq(["Probescope::Error: no name: "] * 9)
    expect(development.last).to eq("Probescope::Error: 13 arguments: at most 12 are possible")
  end

  it "fires in Ractors that receive the probe" do
    expect(printed(<<~RUBY)).to eq(["[false, false, false, 0, :checkout]"])
      shop = Probescope::Provider.define("shop") { probe :checkout, :string, :integer }
      ractor = Ractor.new(Ractor.make_shareable(shop[:checkout])) do |one|
        [one.fire("a", 1), one.fire { raise }, one.enabled?, one.dropped, one.name]
      end
      p ractor.respond_to?(:value) ? ractor.value : ractor.take
    RUBY
  end

  # Both are measured in turns in one process. bench/fire.rb has the figures.
  it "costs at most twice a call of an empty C function with the block, without a tracer", :slow do
    ratio = attempts(3) do
      printed(<<~RUBY).last.to_f.tap { |one| expect(one).to be <= 2 }
        checkout = Probescope::Provider.define("shop") { probe :checkout, :string, :integer }[:checkout]
        now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) }
        fire = -> { t = now.(); i = 0; while i < 2000; checkout.fire { ["a", i] }; i += 1; end; now.() - t }
        call = lambda do
          t = now.(); i = 0; while i < 2000; Probescope::Native.nothing { ["a", i] }; i += 1; end; now.() - t
        end
        turns = Array.new(300) { [fire.(), call.()] }
        p turns.map(&:first).sort[100] / turns.map(&:last).sort[100].to_f
      RUBY
    end
    expect(ratio).to be <= 2
  end

  it "does nothing on a Ruby without probes, and its collected providers leave no objects" do
    expect(printed(<<~RUBY)).to eq(%w[false false 0 0])
      module Probescope; def self.unavailable_reason = "a test"; end
      shop = Probescope::Provider.define("shop") { probe :checkout, :string }
      p shop[:checkout].fire(1, 2, 3), shop[:checkout].enabled?, shop.dropped
      class << Probescope; remove_method :unavailable_reason; end
      Probescope.instance_eval { @loaded = true; @unavailable_reason = nil; require native_path }
      module Probescope; def self.unavailable_reason = nil; end
      300.times { |i| Probescope::Provider.define("shop\#{i}") { probe :checkout, :string } }
      3.times { GC.start }
      p Dir.children("#{directory}/probescope").size / 10
    RUBY
  end
end
