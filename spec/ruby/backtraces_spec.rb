# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

RSpec.describe "backtraces that become strings", :bpf do
  done = { backtrace__done: %i[kind file line depth elapsed function type raise_file raise_line] }
  stats = { exception__stats: %i[type line raised string_cost asked_file asked_line] }
  both = %w[backtrace__done exception__stats]

  # Starts a program that does the same work three times: before the attacher in C attaches, while
  # it is attached, and afterwards. Returns the three reports.
  def thrice(source, probes)
    target, directory = program(<<~RUBY)
      #{source}
      %i[attached detached never].each do |until_then|
        Gate.on(*%i[#{probes.join(" ")}]) if until_then == :detached
        Gate.off(*%i[#{probes.join(" ")}]) if until_then == :never
        # Each turn is on the same line, which its backtraces contain.
        $stdout.write("turn " + JSON.generate(all: everything) + "\\n")
        $stdout.flush
        Gate.open(until_then)
      end
    RUBY
    target.await_line(/\Aturn /)
    tracer = attacher(target, *probes)
    tracer.attached
    FileUtils.touch(File.join(directory, "attached"))
    turns = lambda do
      target.out.lines.grep(/\Aturn .*\n/).map { |line| JSON.parse(line.delete_prefix("turn "))["all"] }
    end
    await("the second turn of #{target}") { turns.call[1] }
    tracer.finish
    FileUtils.touch(File.join(directory, "detached"))
    await("the third turn of #{target}") { turns.call[2] }
    expect(target.err).to be_empty
    turns.call
  end

  it "are reported once each, with the method called, its caller, and the place of the raise" do
    run = trace(<<~RUBY, done.merge(stats))
      eval <<~LIBRARY, TOPLEVEL_BINDING, "/app/vendor/library.rb", 1
        class Library
          def self.log(e) = e.backtrace.join
        end
      LIBRARY
      class Failure < StandardError; end
      class Chained < StandardError; end
      class Shop
        def sink(n) = n.zero? ? raise(Failure, "x") : sink(n - 1)
        def fail_at(n)
          sink(n)
        rescue Failure => e
          e
        end
        def asks(e) = e.backtrace
        def shows(e) = e.full_message(highlight: false)
        def logs(e) = Library.log(e)
        def raises_again(e)
          raise e
        rescue Failure
          e.backtrace
        end
        def chained(e)
          begin; raise e; rescue Failure; raise Chained, "y"; end
        rescue Chained => e
          e
        end
        def where = caller
        def places = caller_locations(1, 1)
      end
      Gate.on :backtrace__done, :exception__stats
      shop = Shop.new
      e = shop.fail_at(10)
      3.times { shop.asks(e) }
      2.times { shop.shows(e) }
      shop.logs(shop.fail_at(20))
      shop.raises_again(shop.fail_at(3))
      4.times { shop.where }
      Kernel.caller(0)
      5.times { shop.places }
      # None of these becomes strings.
      shop.shows(Failure.new("never raised"))
      set = Failure.new("set")
      set.set_backtrace(["a:1"])
      shop.asks(set)
      shop.fail_at(4).backtrace_locations
      begin; raise Failure, "z", []; rescue Failure => e; e.backtrace; end
      # Many other exceptions were raised after this one.
      old = shop.fail_at(6)
      100.times { (raise KeyError, "other") rescue 1 }
      shop.asks(old)
      # The whole chain is shown once.
      shop.shows(shop.chained(shop.fail_at(2)))
      Gate.done depth: shop.fail_at(10).backtrace.size
    RUBY
    told = run.events(:backtrace__done)
    depth = run.report[:depth]
    expect(told.map { |event| event.values_at(:kind, :function, :line, :type, :raise_line) }.tally).to eq(
      ["backtrace", "Shop#asks", 15, "Failure", 9] => 2,
      ["full_message", "Shop#shows", 16, "Failure", 9] => 2,
      ["backtrace", "Shop#logs", 17, "Failure", 9] => 1,
      ["backtrace", "Shop#raises_again", 19, "Failure", 9] => 1,
      ["caller", "Shop#where", 28, "", 0] => 4,
      ["caller", "<main>", 39, "", 0] => 1,
      ["caller_locations", "Shop#places", 29, "", 0] => 5,
      ["backtrace", "Shop#chained", 24, "Failure", 9] => 1,
      ["full_message", "Shop#shows", 16, "Chained", 24] => 1,
      ["backtrace", "<main>", 54, "Failure", 9] => 1
    )
    expect(told.map { |event| event[:elapsed] }).to all(be_positive)
    expect(told.map { |event| event[:file] }).to all(end_with("app.rb"))
    expect(told.select { |event| event[:line] == 15 }.map { |event| event[:depth] }).to eq([depth, depth - 4])
    # The cost of strings is charged only to the place where the exception was first raised.
    rows = run.totals(:exception__stats, %i[type line])
    charged = told.reject { |event| event[:type].empty? }
                  .group_by { |event| event.values_at(:type, :raise_line) }
    expect(rows.reject { |_, row| row[:string_cost].zero? }.keys).to match_array(charged.keys)
    charged.each do |place, events|
      expect(rows[place][:string_cost]).to be_within(events.size).of(events.sum { |event| event[:elapsed] })
    end
    failures = run.events(:exception__stats).select { |row| row[:type] == "Failure" }
    last = failures.select { |row| row[:string_cost].positive? }.last
    expect(last).to include(asked_line: 54, asked_file: end_with("app.rb"))
  end

  it "have the cost that the program itself measures around them" do
    run = trace(<<~RUBY, done.merge(stats))
      class Deep < StandardError; end
      CLOCKS = [Process::CLOCK_MONOTONIC, Process::CLOCK_THREAD_CPUTIME_ID]
      def now = CLOCKS.map { |clock| Process.clock_gettime(clock, :nanosecond) }
      def since(start) = now.zip(start).map { |after, before| after - before }
      def sink(n) = n.zero? ? raise(Deep, "x") : sink(n - 1)
      def made(n) = (sink(n) rescue $!)
      def asks(e)
        start = now
        e.backtrace
        since(start)
      end
      def shows(e)
        start = now
        e.full_message
        since(start)
      end
      Gate.on :backtrace__done, :exception__stats
      asked = [100, 500].map { |n| Array.new(100) { asks(made(n)) } }
      shown = [100, 500].map { |n| Array.new(100) { shows(made(n)) } }
      Gate.done backtrace: asked, full_message: shown
    RUBY
    charged = run.totals(:exception__stats)["Deep"][:string_cost]
    told = run.events(:backtrace__done).group_by { |event| event[:kind].to_sym }
              .transform_values { |events| events.map { |event| event[:elapsed] } }
    expect(charged).to be_within(600).of(told.values.flatten.sum)
    %i[backtrace full_message].each do |kind|
      rows = told[kind].zip(run.report[kind].flatten(1)).map(&:flatten)
      expect(rows.size).to eq(200)
      # The program's clocks also run while the probe fires, so they measure more. In most cases it
      # is not much more: in CPU time, because on a busy machine the kernel often gives the CPU to
      # another process when the probe fires.
      expect(rows).to all(satisfy { |measured, truth, _cpu| measured < truth })
      shares = rows.map { |measured, _truth, cpu| measured.fdiv(cpu) }.sort
      expect(shares[shares.size / 2]).to be > 0.5
    end
  end

  # full_message calls the application's message after `backtrace`.
  it "have their depth and place, whatever the message does inside of full_message" do
    run = trace(<<~RUBY, done)
      class Busy < StandardError
        def message = ((raise KeyError rescue $!.backtrace) && GC.start; "x")
      end
      def sink(n) = n.zero? ? raise(Busy) : sink(n - 1)
      def made(n) = (sink(n) rescue $!)
      Gate.on :backtrace__done
      e = made(20)
      100.times { (raise KeyError, "other") rescue 1 } # its place has to be read from the strings
      e.full_message(highlight: false)
      Gate.done depth: e.backtrace.size
    RUBY
    shown = run.events(:backtrace__done).select { |event| event[:kind] == "full_message" }
    expect(shown).to match([include(type: "Busy", raise_line: 4, depth: run.report[:depth])])
  end

  it "are unhooked without an exception in an application that has removed a hooked method itself" do
    run = start(<<~RUBY, done)
      Gate.on :backtrace__done
      callers = Object.ancestors.find { |one| one != Kernel && one.private_method_defined?(:caller, false) }
      callers.send(:remove_method, :caller)
      callers.include(Module.new { def caller(*) = [] })
      Gate.open :leave
      Gate.off :backtrace__done
      $stdout.puts "report {}"
      $stdout.flush
      sleep
    RUBY
    run.target.await_on("backtrace__done")
    run.open(:leave)
    run.tracer.finish
    run.target.await_line(/\Areport/)
    expect(run.target.err).to be_empty
  end

  it "keep the result of every form of caller" do
    before, during, after = thrice(<<~'RUBY', both)
      class Duck
        def to_int = 2
      end
      class Wide
        def begin = 1
        def end = 3
        def exclude_end? = false
      end
      module Own
        def caller(*) = super
        alias called caller
      end
      class Uses
        include Own
        def ask(*with) = caller(*with)
        def alias(*with) = called(*with)
      end
      ARGUMENTS = [
        [], [-1], [nil], [1, nil], [1, -1], [-1, 1], [1.9], [2**70], ["1"], [:x], [1, 2, 3],
        [Duck.new], [Wide.new], [0..], [2..], [..2], [..-3], [nil..nil], [1...3], [5..2], [1..1.5],
        ["a".."b"], [0..2**70], [1.step(5, 2)], [-1000..-1],
        *(0..16).flat_map do |n|
          [[n], [n, 2], [n..n], [n..-2], [0...n], [-n..-1], [-n..2], [-n..-n], [1..-n]]
        end
      ].freeze
      def shown(value) = value.is_a?(Array) ? value.map(&:to_s) : value.inspect
      def tried
        shown(yield)
      rescue Exception => e
        # Ruby 3.4 names the module of a method, and the hook's module is not the original's.
        [e.class, e.message, e.backtrace.size, e.backtrace.first[/\A.*:\d+:in/],
         e.backtrace.first[/\w+'\z/], e.backtrace[1..3]]
      end
      def deep(n, &block) = n.zero? ? block.call : deep(n - 1, &block)
      def forms(*with)
        [deep(3) { tried { caller(*with) } },
         deep(3) { tried { caller_locations(*with) } },
         tried { Kernel.caller(*with) },
         tried { Kernel.caller_locations(*with) },
         tried { send(:caller, *with) },
         tried { method(:caller).call(*with) },
         tried { Kernel.instance_method(:caller_locations).bind_call(1, *with) },
         tried { Uses.new.ask(*with) },
         tried { Uses.new.alias(*with) },
         [1].map { tried { caller(*with) } },
         Thread.new { tried { caller(*with) } }.value,
         Fiber.new { tried { caller(*with) } }.resume,
         eval("tried { caller(*with) }"),
         tried { Object.new.instance_eval { caller(*with) } },
         tried { Object.new.caller },
         tried { BasicObject.new.instance_eval { caller } }]
      end
      def everything = ARGUMENTS.map { |with| forms(*with).inspect.gsub(/0x\h+/, "") }
    RUBY
    before.zip(during).each { |one, other| expect(other).to eq(one) }
    expect(after).to eq(before)
  end

  it "do not disturb an application that overrides these methods" do
    before, during, after = thrice(<<~'RUBY', both)
      class Own < StandardError
        def backtrace = ["own:1"]
      end
      class Cleaned < StandardError
        def backtrace = super&.grep(/sink/)
      end
      class Asks < StandardError
        def message = "#{caller.size > 1} #{backtrace.to_a.size > 1}"
      end
      class Refuses < StandardError
        def message = raise(ArgumentError, "no message")
      end
      class Odd < StandardError
        def backtrace = 42
      end
      module Refined
        refine(Exception) { def backtrace = ["refined", super&.size] }
      end
      def sink(n, *what) = n.zero? ? raise(*what) : sink(n - 1, *what)
      def rescued(*what)
        sink(3, *what)
      rescue Exception => e
        e
      end
      def tried
        yield.inspect.gsub(/0x\h+/, "")
      rescue Exception => e
        # An exception that left full_message also left the hook's, on the same line.
        lines = Array(e.backtrace).map { |line| line.to_s.sub(/in .*full_message'\z/, "full_message") }
        [e.class, e.message, lines.uniq.size].inspect.gsub(/0x\h+/, "")
      end
      eval <<~CODE
        using Refined
        def refined(e) = e.backtrace
      CODE
      def endless = endless()
      def ended
        endless
      rescue SystemStackError => e
        e.class
      end
      def everything
        failures = [Own, Cleaned, Asks, Odd, IOError, NotImplementedError, Interrupt, SystemExit,
                    StopIteration, Class.new(Exception), IOError.new("x").freeze, Own.new.freeze]
        failures = failures.map { |what| rescued(what) }
        failures << (Integer("z") rescue $!) << (nil.unknown rescue $!) << (1 / 0 rescue $!)
        failures << ended << (catch { |tag| throw tag, 1 }) << StandardError.new("never") << Own.new
        shown = failures.grep(Exception).map do |e|
          [tried { e.backtrace },
           tried { e.full_message(highlight: false) }, tried { e.full_message(order: :bottom) },
           tried { refined(e) },
           tried { e.backtrace.equal?(e.backtrace) }, tried { e.backtrace_locations&.size },
           tried { e.backtrace(1) }, tried { e.full_message(1) },
           tried { e.frozen? }, tried { e.dup.backtrace },
           tried { raise e }, tried { Marshal.load(Marshal.dump(e)).backtrace }]
        end
        shown << tried { rescued(Refuses).full_message.class } << ended
        shown << tried { Exception.instance_method(:backtrace).bind_call(rescued(IOError)) }
        shown << [Exception.instance_method(:backtrace), IOError.new.method(:full_message)].map(&:arity)
        shown << [Kernel.private_method_defined?(:caller), Object.new.respond_to?(:caller),
                  Kernel.respond_to?(:caller)]
        thread = Thread.new { Thread.current.report_on_exception = false; sink(4, KeyError) }
        shown << tried { thread.value }
        shown << Fiber.new { tried { sink(2, KeyError) } }.resume
        shown
      end
    RUBY
    before.zip(during).each { |one, other| expect(other).to eq(one) }
    expect(after).to eq(before)
  end

  it "are counted by modules that do not exist before the attach, and are empty afterwards" do
    before, during, after = thrice(<<~'RUBY', both)
      WHERE = [[Exception, :backtrace], [Exception, :full_message],
               [Object, :caller], [Object, :caller_locations]].freeze
      def everything
        names = [Exception, Kernel, Kernel.singleton_class].map do |one|
          one.ancestors.first(2).map(&:to_s).grep(/probescope/i).size
        end
        [names, WHERE.map { |one, name| one.instance_method(name).owner.to_s.match?(/probescope/i) },
         Exception.instance_methods(false).include?(:backtrace)]
      end
    RUBY
    expect(before).to eq([[0, 0, 0], [false] * 4, true])
    expect(during.first(2)).to eq([[1, 1, 1], [true] * 4])
    expect(after).to eq([[1, 1, 1], [false] * 4, true])
  end

  it "continue when the methods are redefined, or removed while they run" do
    target, = program(<<~'RUBY')
      class Waits < StandardError; end
      def failed(type = Waits) = (raise type, "x") rescue $!
      Gate.on :backtrace__done, :exception__stats
      class Exception
        alias original backtrace
        def backtrace
          if is_a?(Waits) && @wait
            @wait = false
            $stdout.write("inside\n")
            $stdout.flush
            Gate.off :backtrace__done, :exception__stats
          end
          original&.map(&:upcase)
        end
      end
      waits = failed
      waits.instance_variable_set(:@wait, true)
      result = waits.backtrace
      Gate.done result: result == waits.backtrace_locations.map { |line| line.to_s.upcase },
                other: failed.backtrace.size
    RUBY
    tracer = attacher(target, *both)
    tracer.attached
    target.await_line(/\Ainside/)
    tracer.finish
    report = JSON.parse(target.await_line(/\Areport (.*)/)[1])
    expect(report).to eq("result" => true, "other" => 2)
    # The application now has methods of its own. Probescope does not hook them, and reports it.
    again = attacher(target, *both)
    again.attached
    await("its answer") { target.info.state("backtrace__done") == :degraded }
    expect(target.info.probes["backtrace__done"][:reason]).to match(/methods of its own/)
    expect(target.err).to be_empty
  end

  it "are also requested by Ractors, and not counted there" do
    run = trace(<<~'RUBY', done, options: ["-W0"])
      Gate.on :backtrace__done
      Gate.flushed(1) # the kernel shows a tracer a moment before it runs the tracer's program
      ractor = Ractor.new do
        [caller(0).size.positive?,
         (raise(IOError, "r") rescue [$!.backtrace.size, $!.full_message(highlight: false)[/IOError/]])]
      end
      answer = ractor.respond_to?(:value) ? ractor.value : ractor.take
      caller(0)
      Gate.done answer: answer
    RUBY
    expect(run.report[:answer]).to eq([true, [1, "IOError"]])
    # Ractor.new itself calls caller_locations in the main Ractor.
    expect(run.events(:backtrace__done).map { |event| event[:kind] } - ["caller_locations"]).to eq(["caller"])
    expect(run.target.err).to be_empty
  end
end
