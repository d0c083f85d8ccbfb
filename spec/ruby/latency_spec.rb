# frozen_string_literal: true

require_relative "../support/own_probes"

# Methods with latency probes, traced with a real bpftrace.
RSpec.describe "Probescope::Latency" do
  include_context "with probes of their own"

  let(:shop) { start("-r#{Support::ROOT}/spec/ruby/support/latency.rb", "-e", "") }

  # Enables the JIT, except on Ruby 3.1, where the hooks are refused under the JIT.
  def options = defined?(RubyVM::YJIT) && !RUBY_VERSION.start_with?("3.1.") ? %w[--yjit] : []

  def ask(process, command, pattern = /^#{command}\w* ?(.*)/)
    process.puts(command)
    process.await_line(pattern)[1]
  end

  # {name => [[elapsed in ns, outcome], ...]}
  def calls(tracer)
    told = tracer.out.scan(/^(\S+) (\d+) (\d)$/).group_by(&:first)
    told.transform_values { |all| all.map { |_, *two| two.map(&:to_i) } }
  end

  def outcomes(seen, name) = seen.fetch("Shop.Cart.#{name}").map(&:last)

  # The kernel raises a probe's semaphore before the tracer's program runs on it. bpftrace attaches
  # from the first probe or from the last, depending on its version. So there is a beat at either
  # end: after both beats, all probes between them are attached.
  def beating(text) = [0, 1].map { |n| "interval:ms:20 { printf(\"beat #{n}\\n\"); }" }.join("\n#{text}\n")

  def await_beats(tracer) = [0, 1].each { |n| tracer.await_line(/^beat #{n}$/) }

  def program_of(names)
    names.map { |name| %(usdt:*:latency:"#{name}" { printf("#{name} %llu %d\\n", arg0, arg1); }) }.join("\n")
  end

  it "reports each call and its outcome to bpftrace, and does not change methods of any kind", :bpf do
    names = shop.await_line(/^ready (.*)/)[1].split
    text = tracer(beating(program_of(names)), pid: shop.pid)
    await_beats(text)
    expect(ask(shop, "listened")).to eq("0")
    took = ask(shop, "use", /^used (\d+)/).to_i
    expect(ask(shop, "change")).to start_with("there is no such method now")
    await("the last call of #{text}") { calls(text).key?("Shop.Cart.defines") }
    text.stop(:INT)
    ask(shop, "left")

    seen = calls(text)
    expect(seen["Shop.once"].map(&:last)).to eq([0] * 16)
    expect(outcomes(seen, "pay")).to eq([0, 0]) # also through its alias
    expect(seen["Shop.Priced.rate"].size).to eq(2) # in the module and in the class
    expect(outcomes(seen, "fails")).to eq([1, 1])
    expect(outcomes(seen, "recovers")).to eq([0])
    expect(outcomes(seen, "ensures")).to eq([0, 0, 0, 1]) # throw, break, return; raise
    expect(outcomes(seen, "count_down")).to eq([0] * 5)
    expect(seen["Shop.Cart.count_down"].map(&:first)).to eq(seen["Shop.Cart.count_down"].map(&:first).sort)
    expect(outcomes(seen, "waits")).to eq([0, 0])
    expect(outcomes(seen, "naps")).to eq([1, 0])
    expect(seen["Shop.Cart.naps"].map(&:first))
      .to match([be_between(10_000_000, 2.9e10), be_between(30_000_000, took)])
    expect(seen["Shop.Cart.edition"].size).to eq(21) # also the new definition
    expect(seen["Shop.Cart.gone"].size).to eq(10) # after a stack that was unwound without return events
  end

  it "fires in forked children by the library's path, and for each tracer separately", :bpf do
    names = shop.await_line(/^ready (.*)/)[1].split
    path = ask(shop, "paths")
    expect(Dir["#{directory}/probescope/latency-*"].size).to eq(names.size)
    child = ask(shop, "fork", /^forked (\d+)/)
    of_child = tracer(%(usdt:#{path}:latency:"Shop.Cart.edition" { printf("from %d\\n", pid); }))
    of_child.await_line(/^from #{child}$/)
    shop.close_stdin
    expect(shop.wait).to be_success
  end

  it "fires beside function probes, samples, and the application's own TracePoint and coverage", :bpf do
    File.write("#{directory}/shop.rb",
               "class Shop\n  def pay(left)\n    left.zero? ? 0 : pay(left - 1)\n  end\nend\n")
    source = <<~RUBY
      $stdout.sync = true
      require "coverage"
      Coverage.start
      load(ARGV.first)
      Probescope.functions = :all
      Probescope::Latency.trace(Shop, :pay)
      puts "ready"
      $stdin.gets
      sleep 0.002 until Probescope::Latency.probes["Shop.pay"][:listened] &&
                        Probescope.status[:probes][:function__return].first == :on
      seen = 0
      TracePoint.new(:call) { |tp| seen += 1 if tp.method_id == :pay }.enable { 20.times { Shop.new.pay(4) } }
      puts "seen \#{seen} \#{Coverage.result.fetch(ARGV.first)}"
      $stdin.gets
      Shop.new.pay(4) while Probescope::Latency.probes["Shop.pay"][:listened]
      Shop.new.pay(0)
      puts "left"
      $stdin.gets
    RUBY
    program = start("-rprobescope", "-e", source, "#{directory}/shop.rb")
    program.await_line(/^ready/)
    others = %w[function__return sample request__done exception__raise].map do |probe|
      %(usdt:*:probescope:#{probe} { printf("#{probe} %s\\n", str(arg0)); })
    end
    functions, latency = [others.join("\n"), program_of(%w[Shop.pay])].map do |text|
      tracer(beating(text), pid: program.pid)
    end
    [functions, latency].each { |one| await_beats(one) }
    program.puts("both")
    expect(program.await_line(/^seen (.*)/)[1]).to eq("100 [1, 1, 100, nil, nil]")
    told = -> { functions.out.scan("function__return Shop#pay\n").size }
    await("all calls") { told.call >= 100 && calls(latency).fetch("Shop.pay", []).size >= 100 }
    expect([told.call, calls(latency)["Shop.pay"].size]).to eq([100, 100])
    latency.stop(:INT)
    program.puts("one")
    program.await_line(/^left/)
    await("functions, still") { told.call > 100 }
    expect(program.err).to eq("")
  end

  # The data of a fiber may wait for its sweep while a new fiber already has its address. This
  # program delays the sweep that long.
  it "fires for calls in a fiber at the address of an earlier one", :bpf do
    source = <<~'RUBY'
      $stdout.sync = true
      class Shop
        def begins = 1

        def work
          $kept = nil
          GC.start
        end
      end
      Probescope::Latency.trace(Shop, :begins, :work)
      place = ->(fiber) { fiber.inspect[/0x\h+/] }
      body = proc { Shop.new.work }
      gone = lambda do
        others = Array.new(500) { Fiber.new {} }
        old = Fiber.new do
          Shop.new.work
          $kept = Thread.current[:__probescope__]
        end
        others << Array.new(500) { Fiber.new {} }
        old.resume
        place.call(old)
      end
      puts "ready"
      while $stdin.read_nonblock(1, exception: false) == :wait_readable
        Shop.new.begins
        Shop.new.work
      end
      Shop.new.begins
      rounds = again = 0
      ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 30
      until again == 1 || Process.clock_gettime(Process::CLOCK_MONOTONIC) > ends
        address = Fiber.new(&gone).resume
        GC.start
        found = Array.new(3000) { Fiber.new(&body) }.find { |fiber| place.call(fiber) == address }
        rounds += 1
        next unless found && $kept
        again += 1
        found.resume
      end
      puts "made #{rounds + again} #{again}"
      $stdin.gets
    RUBY
    program = start("-rprobescope", "-e", source)
    program.await_line(/^ready/)
    text = tracer(<<~'BT', pid: program.pid)
      usdt:*:latency:"Shop.work" { @told = count(); printf("works\n"); }
      usdt:*:latency:"Shop.begins" { clear(@told); printf("begins\n"); }
    BT
    %w[works begins].each { |word| text.await_line(/^#{word}/) }
    program.puts("measure")
    made, again = program.await_line(/^made (\d+) (\d+)/, within: 60)[1..].map(&:to_i)
    text.stop(:INT)
    expect(again).to be_positive
    expect(text.out[/^@told: (\d+)/, 1].to_i).to eq(made)
  end

  # From 3.3 on, a Ractor that collects runs all waiting jobs, probescope's too. Up to 3.2, threads
  # are reused across Ractors.
  it "hooks methods in the main Ractor, whichever Ractor runs the job, and fires on its threads only", :bpf do
    source = <<~RUBY
      $stdout.sync = true
      Warning[:experimental] = false
      class Shop
        def main = 1
        def other = 2
      end
      %i[main other].each { |name| Probescope::Latency.trace(Shop, name) }
      def result(ractor) = ractor.respond_to?(:value) ? ractor.value : ractor.take
      puts "ready"
      collecting = Ractor.new(ARGV.first) do |stop|
        until File.exist?(stop)
          50.times { File.open(File::NULL) }
          GC.start
        end
      end
      result(collecting)
      collecting = nil
      Shop.new.main until Probescope::Latency.probes.any? { |_, probe| probe[:listened] }
      until $stdin.read_nonblock(1, exception: false).nil?
        result(Ractor.new { Shop.new.other })
        Thread.new { Shop.new.main }.join
        GC.start
      end
      Shop.new.main while Probescope::Latency.probes.any? { |_, probe| probe[:listened] }
      puts "left"
    RUBY
    program = start("-rprobescope", "-e", source, "#{directory}/stop")
    program.await_line(/^ready/)
    text = tracer(beating(program_of(%w[Shop.main Shop.other])), pid: program.pid)
    await_beats(text)
    FileUtils.touch("#{directory}/stop")
    await("calls of threads: #{text}") { calls(text).fetch("Shop.main", []).size >= 20 }
    expect(calls(text)).not_to include("Shop.other")
    program.close_stdin
    text.stop(:INT)
    expect(program.wait).to be_success, program.to_s
    expect(program.out).to include("left")
    expect(program.err).to eq("")
  end

  # The VM may let another thread run while hooks are switched. This program forces it.
  it "unhooks a method only when no other thread switches hooks", :bpf do
    process = start("-rprobescope", "-e", <<~'RUBY')
      $stdout.sync = true
      ORDER = []
      QUEUE = Queue.new
      class Cart; def pay = 1; end
      Thread.new do
        QUEUE.pop
        Probescope::Latency.untrace(Cart, :pay)
        ORDER << "untraced"
      end
      class UnboundMethod
        alias owner_before owner
        def owner
          if $armed
            $armed = false
            ORDER << "looks"
            QUEUE << true
            500.times { Thread.pass if ORDER.size == 1 }
            ORDER << "looked"
          end
          owner_before
        end
      end
      Probescope::Latency.trace(Cart, :pay)
      # On a Ruby with YJIT, one hook reports loaded files as long as the library is loaded.
      def hooks = ObjectSpace.each_object(TracePoint).count(&:enabled?)
      before = hooks
      $armed = true
      puts "ready"
      sleep 0.002 until ORDER.size == 3
      sleep 0.002 until hooks == before
      puts "order #{ORDER.join(" ")}"
    RUBY
    process.await_line(/^ready/)
    tracer(program_of(%w[Cart.pay]), pid: process.pid)
    expect(process.await_line(/^order (.*)/)[1]).to eq("looks looked untraced")
  end

  it "reports that a method has no hook, when an error ends the look at it", :bpf do
    process = start("-rprobescope", "-e", <<~'RUBY')
      $stdout.sync = true
      class RubyVM::InstructionSequence
        prepend(Module.new { def trace_points = label == "lost" ? raise(NoMemoryError) : super })
      end
      class Cart; def lost = 1; end
      Probescope::Latency.trace(Cart, :lost)
      puts "ready"
      sleep 0.002 until Probescope::Latency.probes["Cart.lost"][:listened]
      puts "error #{Probescope::Latency.probes["Cart.lost"][:error]}"
      sleep
    RUBY
    process.await_line(/^ready/)
    tracer(program_of(%w[Cart.lost]), pid: process.pid)
    expect(process.await_line(/^error (.*)/)[1]).to eq("an error ended the look at the method")
  end

  # The methods of one module_function have one name, so they have one probe.
  it "reports that one of a probe's methods has gone, also if another one is traced", :bpf do
    process = start("-rprobescope", "-e", <<~'RUBY')
      $stdout.sync = true
      class Cart; def gone = 1; end
      module Priced
        module_function

        def rate = 3
      end
      Probescope::Latency.trace(Cart, :gone)
      [Priced, Priced.singleton_class].each { |owner| Probescope::Latency.trace(owner, :rate) }
      puts "ready"
      sleep 0.002 until Probescope::Latency.probes.all? { |_, probe| probe[:listened] }
      Priced.singleton_class.remove_method(:rate)
      Cart.remove_method(:gone)
      sleep 0.002 until Probescope::Latency.probes["Cart.gone"][:error] # one look updates all probes
      puts "error #{Probescope::Latency.probes["Priced.rate"][:error]}"
      sleep
    RUBY
    process.await_line(/^ready/)
    tracer(program_of(%w[Cart.gone Priced.rate]), pid: process.pid)
    expect(process.await_line(/^error (.*)/)[1]).to start_with("there is no such method now")
  end

  it "reports the methods that cannot be traced, with the reason" do
    source = <<~RUBY
      class Base; def self.made = 1; def old = 1; end
      class Cart < Base
        attr_reader :size
        def paid?(*) = 1
        alias [] paid?
        alias size= paid?
        def self.instance_method(*) = raise("its own")
        define_method(:body) { 1 }
        def new_one = 1
      end
      def said = p(yield) rescue puts("\#{$!.class}: \#{$!.message}")
      said { Probescope::Latency.trace(Cart, :nothing) }
      said { Probescope::Latency.trace(Cart, :old) }
      said { Probescope::Latency.trace(Cart, :made) }
      said { Probescope::Latency.trace(Cart, :size) }
      said { Probescope::Latency.trace(String, :upcase) }
      said { Probescope::Latency.trace(42, :upcase) }
      said { Probescope::Latency.trace(Class.new { def x = 1 }, :x) }
      said { Probescope::Latency.trace(Cart, :new_one, as: "a b") }
      said { Probescope::Latency.trace(Cart, :new_one, as: "x" * 128) }
      said { Probescope::Latency.trace(Cart, :new_one, as: "a\\0b") }
      said { Probescope::Latency.trace(Cart, :new_one, :body, as: "both") }
      said { Probescope::Latency.untrace(Cart, :new_one) }
      said { Probescope::Latency.trace(Cart, :new_one) }
      said do
        Probescope::Latency.probes.map do |name, probe|
          [name, File.exist?(probe[:path]), probe[:listened], probe[:error]]
        end
      end
      said { Probescope::Latency.untrace(Cart, :new_one) }
      said { Probescope::Latency.probes }
      said { Probescope::Latency.trace(Cart, :paid?, :[], :size=) }
      said { Probescope::Latency.trace(Cart).sort }
      said do
        [Probescope::Latency.untrace(Cart), Probescope::Latency.untrace(Cart), Probescope::Latency.probes]
      end
      said { Probescope::Latency.trace(Cart, :body) }
    RUBY
    lines = printed(source)
    old = RUBY_VERSION.start_with?("3.1.")
    cart = ["Cart._x5b_x5d", *("Cart.body" unless old), "Cart.new_one", "Cart.paid_q", "Cart.size_eq"]
    expect(lines[0..10]).to all(start_with("Probescope::Error: "))
    expect(lines).to match([/Cart#nothing: there is no such method, and Cart\.nothing neither/,
                            /Cart#old: it is Base#old: trace that/,
                            /Cart\.made: it is Base\.made: trace that/,
                            /Cart#size: it is written in C/, /String#upcase: .* in C/,
                            /not a class or module: 42/, /as: "Name\.x"/,
                            /a b: no name for a probe/, /no name for a probe: 1 to 127/,
                            /"a\\u0000b": string contains null byte/,
                            /as: is the name of one probe, for one method/,
                            "false", '"Cart.new_one"', '[["Cart.new_one", true, false, nil]]', "true", "{}",
                            '["Cart.paid_q", "Cart._x5b_x5d", "Cart.size_eq"]',
                            cart.inspect,
                            "[true, false, {}]",
                            old ? /from Ruby 3\.2 on/ : '"Cart.body"'])
  end

  it "does nothing on a Ruby without probes" do
    expect(printed(<<~RUBY)).to eq(["nil", "false", "{}"])
      module Probescope; def self.unavailable_reason = "a test"; end
      p Probescope::Latency.trace(String, :x), Probescope::Latency.untrace(String, :x),
        Probescope::Latency.probes
    RUBY
  end

  # Both are measured in turns in one process, and the shortest run counts: other programs can only
  # add time. bench/latency.rb has the figures.
  it "adds no time to a method without a tracer", :slow do
    attempts(3) do
      ratio = printed(<<~RUBY).last.to_f
        class Shop; def plain(x) = x; def traced(x) = x; end
        Probescope::Latency.trace(Shop, :traced)
        shop = Shop.new
        now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) }
        plain = -> { t = now.(); i = 0; while i < 5000; shop.plain(i); i += 1; end; now.() - t }
        traced = -> { t = now.(); i = 0; while i < 5000; shop.traced(i); i += 1; end; now.() - t }
        turns = Array.new(300) { [plain.(), traced.()] }
        p turns.map(&:last).min / turns.map(&:first).min.to_f
      RUBY
      expect(ratio).to be <= 1.1
    end
  end
end
