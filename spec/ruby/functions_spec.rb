# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

RSpec.describe "function probes", :bpf do
  stats = { function__stats: %i[function file line calls self elapsed raised] }
  pairs = { function__entry: %i[function depth context_id],
            function__return: %i[function depth context_id elapsed self outcome] }

  # Returns the calls of each row: {"Shop#pay" => 10}.
  def calls(run) = run.totals(:function__stats).transform_values { |row| row[:calls] }

  # Returns a run's entries and returns that do not match. The result is [] when each entry has its
  # return.
  def unpaired(run)
    stacks = Hash.new { |hash, id| hash[id] = [] }
    run.out.each_line(chomp: true).filter_map do |line|
      probe, function, depth, context = line.split("\t")
      case probe
      when "function__entry" then stacks[context] << [function, depth] && nil
      when "function__return" then line unless stacks[context].pop == [function, depth]
      end
    end + stacks.values.flatten(1)
  end

  # Ruby 3.1 crashed at the detach when two TracePoints were on one body. Later Rubies counted each
  # call twice.
  it "count one define_method body that is the method of several classes once, and do not change it" do
    run = trace(<<~RUBY, stats)
      class Desk; define_method(:serve) { 1 }; end
      Counter = Desk.dup
      class Window < Desk; define_method(:help, Desk.instance_method(:serve)); end
      module Bell; define_method(:ring) { 1 }; module_function :ring; end
      def opens(type) = type.class_eval { define_method(:owner) { type } }
      class Left; end
      class Right; end
      [Left, Right].each { |type| opens(type) }
      Gate.on :function__stats
      7.times { [Desk, Counter].each { |type| type.new.serve }; Window.new.help; Bell.ring }
      5.times { Left.new.owner; Right.new.owner }
      Gate.done
    RUBY
    expect(calls(run).select { |name, _| name.match?(/#(serve|help)\z/) }.values.sum).to eq(3 * 7)
    expect(calls(run).select { |name, _| name.end_with?("ring") }.values.sum).to eq(7)
    expect(calls(run)).to include("Left#owner" => 5, "Right#owner" => 5)
    run.target.await_off("function__stats")
    expect(run.target).to be_alive
  end

  # The exit takes its row from the call on top of the stack, and the entry caches the last class.
  it "count one body of several classes for the class of each call, nested, raising and without an " \
     "exit event" do
    run = trace(<<~RUBY, { function__stats: %i[function calls raised] })
      class Desk
        def serve(other = nil, &block)
          other&.serve(&block)
          block&.call unless other
        end
      end
      Counter = Desk.dup
      class Window < Desk
        define_method(:serve, Desk.instance_method(:serve))
      end
      deeper = -> { deeper.() }
      Gate.on :function__stats
      desk, counter, window = Desk.new, Counter.new, Window.new
      10.times { [desk, counter, window].each(&:serve) }
      20.times { desk.serve(counter) { } }
      30.times { counter.serve(desk) { raise "busy" } rescue nil }
      3.times { desk.serve { begin; counter.serve(&deeper); rescue SystemStackError; end } }
      window.serve(window) { }
      Gate.done
    RUBY
    rows = run.totals(:function__stats)
    expect(rows.transform_values { |row| row[:calls] })
      .to eq("Desk#serve" => 63, "Counter#serve" => 63, "Window#serve" => 12)
    expect(rows.transform_values { |row| row[:raised] })
      .to eq("Desk#serve" => 30, "Counter#serve" => 33, "Window#serve" => 0)
  end

  # A hook on a body of define_method also covers methods defined in that body. So does a hook on
  # the code around the body.
  describe "of methods that bodies of define_method define" do
    # The classes come in both orders: the walk reaches either the outer body or the inner one
    # first.
    nested = ->(outer, inner) { <<~RUBY }
      #{outer}.define_method(:level1) do
        #{inner}.define_method(:level2) do
          hit "#{inner}#level2"
          self.class.class_eval do
            def level3
              hit "#{inner}#level3"
            end
          end
        end
      end
      #{outer}.new.level1
    RUBY
    shop = <<~'RUBY'
      class Shop
        define_method(:open) do
          hit "Shop#open"
          self.class.class_eval do
            def sell
              hit "Shop#sell"
            end
          end
        end
        def around
          self.class.class_eval do
            define_method(:inner) do
              hit "Shop#inner"
              self.class.class_eval do
                def innermost
                  hit "Shop#innermost"
                end
              end
            end
          end
        end
        %w[left right].each do |name|
          define_method(name) do
            hit "Shop##{name}"
            self.class.class_eval do
              def both
                hit "Shop#both"
              end
            end
          end
        end
        define_method(:once) do
          hit "Shop#once"
          self.class.class_eval do
            def once
              hit "Shop#once"
            end
          end
        end
        def asks
          once
        end
      end
      Shop.new.around
      First, Second, Third, Fourth = Array.new(4) { Class.new }
    RUBY
    text = shop + nested["First", "Second"] + nested["Fourth", "Third"]
    source = <<~'RUBY'.sub("TEXT", text.dump)
      $VERBOSE = nil
      mode = ARGV[0]
      loaded = File.join(ENV.fetch("GATE_DIRECTORY"), "shop.rb")
      File.write(loaded, TEXT)
      HITS = Hash.new(0)
      def hit(name) = HITS[name] += 1
      work = proc do
        shop = Shop.new
        shop.open
        3.times { shop.sell }
        2.times { shop.inner; shop.innermost }
        shop.left
        shop.right
        4.times { shop.both }
        3.times { shop.asks }
        [Second, Third].each { |inner| 2.times { inner.new.level2; inner.new.level3 } }
      end
      require loaded if %w[loaded called].include?(mode)
      work.call if mode == "called"
      Gate.on :function__stats, :line
      require loaded if mode == "late"
      eval File.read(loaded), TOPLEVEL_BINDING, loaded, 1 if mode == "evaluated"
      Gate.flushed # bodies of define_method get hooks after a pause in loading
      HITS.clear
      work.call
      Gate.done HITS
    RUBY

    { "loaded" => "are loaded before",
      "called" => "are called before",
      "late" => "are loaded while a tracer listens",
      "evaluated" => "are evaluated while a tracer listens" }.each do |mode, name|
      it "count each call and report each line once, when these #{name}" do
        run = trace(source, stats.merge(line: %i[function line]), args: [mode])
        hits = run.report.transform_keys(&:to_s)
        expect(calls(run)).to include(hits)
        # Selects for each method the line on which it counts itself.
        on = text.lines.each_index.select { |i| text.lines[i].include?("hit ") }.map { |i| i + 1 }
        lines = run.events(:line).select { |event| on.include?(event[:line]) }
        functions = lines.map { |event| event[:function] } - ["Object#hit"]
        expect(functions.tally).to eq(hits)
      end
    end
  end

  it "count every call exactly, by its qualified name, and agree with the program's own record" do
    run = trace(<<~RUBY, stats)
      class Shop
        def pay(n) = n.times { price }
        def self.open = new
        define_method(:bag) { |x = 1| x }
        def ask(&) = yield
        def self.field(name) = define_method(name) { name }
        field :name
        field :color
        alias colour color
        class << self
          def close = 1
        end
        private def price = 1
      end
      module Tools
        def self.mend = 1
        def help = 2
      end
      class Shop; include Tools; end
      def top = 1
      lone = Object.new
      def lone.sing = 1
      anonymous = Class.new { def hidden = 1 }
      module Wrapping
        def wrapped = super + 1
      end
      class Shop
        def wrapped = 1
        prepend Wrapping
      end
      module Loud
        refine(Shop) { def loud = 1 }
      end
      using Loud
      recursive = ->(n) { n.zero? ? 0 : recursive.(n - 1) }
      Gate.on :function__stats
      shop = Shop.open
      500.times { shop.pay(3) }
      7.times { shop.bag; shop.name; shop.color; shop.colour }
      3.times { Shop.close; Tools.mend; shop.help; top; lone.sing }
      3.times { anonymous.new.hidden; shop.wrapped; shop.loud }
      2.times { shop.ask { shop.ask { recursive.(4) } } }
      Gate.done
    RUBY
    expect(calls(run)).to include(
      "Shop#pay" => 500, "Shop#price" => 1500, "Shop.open" => 1, "Shop#bag" => 7, "Shop#name" => 7,
      "Shop#color" => 14, "Shop.close" => 3, "Tools.mend" => 3,
      "Tools#help" => 3, "Object#top" => 3, "#<Object>.sing" => 3, "(anonymous Object)#hidden" => 3,
      "Shop#ask" => 4, "Wrapping#wrapped" => 3, "Shop#wrapped" => 3, "Shop#loud" => 3
    )
    expect(run.target.err).to be_empty
  end

  it "count exactly over a second of work on several threads" do
    run = trace(<<~RUBY, stats)
      class Work
        def outer(record) = 10.times { inner(record) }.then { record[:outer] += 1 }
        def inner(record) = record[:inner] += 1
      end
      Gate.on :function__stats
      ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 1.5
      records = Array.new(4) do
        Thread.new do
          record = Hash.new(0)
          Work.new.outer(record) while Process.clock_gettime(Process::CLOCK_MONOTONIC) < ends
          record
        end
      end.map(&:value)
      Gate.done outer: records.sum { _1[:outer] }, inner: records.sum { _1[:inner] }
    RUBY
    expect(calls(run)).to include("Work#outer" => run.report[:outer], "Work#inner" => run.report[:inner])
    row = run.totals(:function__stats)
    expect(row["Work#inner"][:self]).to eq(row["Work#inner"][:elapsed])
    expect(row["Work#outer"][:self] + row["Work#inner"][:elapsed])
      .to be_within(row["Work#outer"][:calls]).of(row["Work#outer"][:elapsed])
  end

  it "pair each entry with its return through every way out of a method" do
    run = trace(<<~RUBY, pairs)
      require "timeout"
      class Ways
        def plain = 1
        def raises = raise("x")
        def rescues = (raises rescue plain)
        def ensures = begin; raises; ensure; plain; end
        def retries(n = 0) = begin; raises; rescue; (n += 1) < 3 ? (retry) : plain; end
        def throws = throw(:out)
        def catches = catch(:out) { plain; throws }
        def each = [1, 2, 3].each { |x| yield x }
        def breaks = each { |x| break x if x == 2 }
        def nexts = each { |x| next if x == 2; plain }
        def returns = each { |x| return x if x == 2 }
        def returns_through_proc = each(&proc { |x| return x })
        def lambdas = lambda { return plain }.call
        def symbols = [self].map(&:plain)
        def recursive(n) = n.zero? ? plain : recursive(n - 1)
        def method_missing(name, *) = plain
        def respond_to_missing?(*) = true
        def late = Timeout.timeout(0.01) { each { sleep } }
        alias other plain
        define_method(:body) { plain }
        define_method(:leaving) { return plain }
        def redo_once(again = true) = each { |x| if again then again = false; redo end }
      end
      Gate.on :function__entry, :function__return
      ways = Ways.new
      %i[plain rescues retries catches breaks nexts returns returns_through_proc lambdas symbols missing
         other body leaving redo_once].each { |name| ways.public_send(name) { |x| x } }
      begin; ways.ensures; rescue RuntimeError; end
      begin; ways.late { sleep }; rescue Timeout::Error; end
      ways.recursive(40)
      Gate.done
    RUBY
    expect(unpaired(run)).to eq([])
    outcomes = run.events(:function__return).group_by { |event| event[:function] }
                  .transform_values { |events| events.map { |event| event[:outcome] }.uniq }
    expect(outcomes).to include("Ways#raises" => [1], "Ways#ensures" => [1], "Ways#plain" => [0],
                                "Ways#rescues" => [0], "Ways#retries" => [0], "Ways#catches" => [0],
                                "Ways#breaks" => [0], "Ways#returns" => [0], "Ways#body" => [0],
                                "Ways#leaving" => [0], "Ways#recursive" => [0])
  end

  it "count a call that an exception left as raised, and no other" do
    run = trace(<<~RUBY, stats)
      class Risk
        def deep(n) = n.zero? ? raise(ArgumentError) : deep(n - 1)
        def guarded = (deep(4) rescue nothing)
        def nothing = nil
        def tidy = begin; deep(0); ensure; nothing; end
        def finds = [nil, 1].each { |x| return x }
      end
      Gate.on :function__stats
      10.times { Risk.new.guarded }
      10.times { (Risk.new.tidy rescue 1) }
      10.times { Risk.new.finds }
      Gate.done
    RUBY
    raised = run.totals(:function__stats).transform_values { |row| row.values_at(:calls, :raised) }
    expect(raised).to include("Risk#deep" => [60, 60], "Risk#guarded" => [10, 0], "Risk#nothing" => [20, 0],
                              "Risk#tidy" => [10, 10], "Risk#finds" => [10, 0])
  end

  it "give the line on which a method with its own clauses was left" do
    run = trace(<<~RUBY, stats)
      class Clauses
        def fails
          raise ArgumentError, "no"
        end
        def unmatched
          fails
          nil
        rescue TypeError
          nothing
        end
        def matched
          fails
        rescue ArgumentError
          nothing
        end
        def raised_again
          fails
        rescue ArgumentError
          raise
        end
        def returned_from_it
          fails
        rescue ArgumentError
          return nil
        end
        def returned_from_ensure
          fails
        ensure
          return nil
        end
        def rescued_in_block
          [1].each { fails rescue nothing }
          nil
        end
        def rescued_by_c
          loop { stops }
          nil
        end
        def stops
          raise StopIteration
        end
        def passes
          fails
          nothing
        end
        def nothing = nil
      end
      Gate.on :function__stats
      names = Clauses.instance_methods(false) - %i[fails stops nothing]
      10.times do
        names.each { |name| Clauses.new.public_send(name) rescue 1 }
      end
      Gate.done
    RUBY
    raised = run.totals(:function__stats).transform_values { |row| row.values_at(:calls, :raised) }
    expect(raised).to include(
      "Clauses#fails" => [70, 70], "Clauses#stops" => [10, 10], "Clauses#unmatched" => [10, 10],
      "Clauses#raised_again" => [10, 10], "Clauses#passes" => [10, 10], "Clauses#matched" => [10, 0],
      "Clauses#returned_from_it" => [10, 0], "Clauses#returned_from_ensure" => [10, 0],
      "Clauses#rescued_in_block" => [10, 0], "Clauses#rescued_by_c" => [10, 0]
    )
  end

  it "count a call once that retries from its begin" do
    run = trace(<<~RUBY, stats)
      class Retrying
        def whole(tries = [0])
          fails(tries)
        rescue ArgumentError
          retry if (tries[0] += 1) < 5
        end
        def fails(tries) = raise(ArgumentError, tries.to_s)
        def recursive(n) = n.zero? ? whole : recursive(n - 1)
      end
      Gate.on :function__stats
      10.times { Retrying.new.recursive(3) }
      Gate.done
    RUBY
    expect(calls(run)).to eq("Retrying#whole" => 10, "Retrying#fails" => 50, "Retrying#recursive" => 40)
  end

  it "give an elapsed time that is self plus the traced callees, and the depth and the context" do
    run = trace(<<~RUBY, pairs)
      class Tree
        def root = 3.times { branch }
        def branch = 2.times { leaf }
        def leaf = 100.times { Math.sqrt(2) }
      end
      Gate.on :function__entry, :function__return
      Tree.new.root
      Thread.new { Tree.new.root }.join
      Fiber.new { Tree.new.root }.resume
      Gate.done
    RUBY
    returns = run.events(:function__return)
    returns.group_by { |event| event[:context_id] }.each_value do |events|
      root = events.find { |event| event[:function] == "Tree#root" }
      branches = events.select { |event| event[:function] == "Tree#branch" }
      # Each figure is rounded down from ticks separately.
      expect(root[:self] + branches.sum { |event| event[:elapsed] }).to be_within(10).of(root[:elapsed])
      depths = events.to_h { |event| event.values_at(:function, :depth) }
      expect(depths).to eq("Tree#root" => 0, "Tree#branch" => 1, "Tree#leaf" => 2)
    end
    expect(returns.map { |event| event[:context_id] }.uniq.size).to eq(3)
    expect(unpaired(run)).to eq([])
  end

  it "separate the stacks of fibers and Enumerators, also of those that are never finished" do
    run = trace(<<~RUBY, pairs.merge(stats))
      class Source
        def each
          item(1)
          yield 1
          item(2)
          yield 2
        end
        def item(n) = n
        def waits = (Fiber.yield(item(0)); item(1))
      end
      Gate.on :function__stats, :function__entry, :function__return
      fibers = Array.new(20) { Fiber.new { Source.new.waits } }
      fibers.each(&:resume)
      fibers.first(10).reverse_each(&:resume)
      half = Source.new.to_enum(:each)
      half.next
      whole = Source.new.to_enum(:each)
      begin; loop { whole.next }; end
      fibers = half = nil
      200.times { f = Fiber.new { Source.new.waits }; f.resume }
      GC.start
      20.times { Source.new.item(1) }
      Gate.done
    RUBY
    totals = calls(run)
    expect(totals).to include("Source#item" => 20 + 10 + 1 + 2 + 200 + 20,
                              "Source#waits" => 10, "Source#each" => 1)
    unfinished = unpaired(run)
    expect(unfinished).to all(be_an(Array)) # entries may lack a return, but no return is out of order
    expect(unfinished.map(&:first).tally).to eq("Source#waits" => 10 + 200, "Source#each" => 1)
    expect(run.events(:function__entry).last).to include(function: "Source#item", depth: 0)
  end

  it "recover their depth after a SystemStackError, for which Ruby sends no return events" do
    run = start(<<~RUBY, stats)
      class Deep
        def endless = endless
        def guarded = begin; endless; rescue SystemStackError; after; end
        def after = 1
      end
      Gate.on :function__stats
      5.times { Deep.new.guarded }
      $stdout.write("deep\n")
      $stdout.flush
      Gate.on :function__entry
      Deep.new.after
      Gate.done
    RUBY
    # The tracer starts here because 50,000 entries would fill its buffer.
    run.target.await_line(/\Adeep$/, within: 60)
    entries = tracer(Tracing.text(function__entry: %i[function depth]), pid: run.target.pid)
    expect(calls(run.finish)).to include("Deep#guarded" => 5, "Deep#after" => 6)
    expect(entries.finish).to include("function__entry\tDeep#after\t0\n")
  end

  it "continue after threads are killed or get exceptions from other threads in mid-call" do
    run = trace(<<~RUBY, stats)
      class Victim
        def work = loop { step }
        def step = 1
        def tidy = begin; work; ensure; after; end
        def after = 1
      end
      Gate.on :function__stats
      100.times do |n|
        thread = Thread.new { Thread.current.report_on_exception = false; Victim.new.tidy }
        Thread.pass until thread.status == "run"
        sleep 0.001
        n.even? ? thread.kill : thread.raise("stop")
        thread.join rescue 0
      end
      Gate.done
    RUBY
    expect(calls(run)).to include("Victim#tidy" => be <= 100)
    totals = run.totals(:function__stats)
    expect(totals["Victim#tidy"][:calls]).to eq(totals["Victim#after"][:calls])
    expect(totals["Victim#work"][:calls]).to eq(totals["Victim#tidy"][:calls])
  end

  it "count a method that is redefined while it runs" do
    run = trace(<<~RUBY, stats)
      $VERBOSE = nil
      class Changing
        def go(n)
          return 1 if n.zero?
          Changing.class_eval { def go(n) = n.zero? ? 2 : go(n - 1) }
          go(n - 1)
        end
      end
      Gate.on :function__stats
      Changing.new.go(5)
      Changing.new.go(0)
      Gate.done
    RUBY
    expect(calls(run)).to eq("Changing#go" => 1 + 5 + 1)
  end

  it "ignore the returns of calls that began before the attach, and give no row for calls open at " \
     "the detach" do
    run = start(<<~RUBY, pairs)
      class Long
        def outer = inner
        def inner = (Gate.on(:function__entry, :function__return); step; :done)
        def step = 1
      end
      Long.new.outer
      Gate.done
    RUBY
    run.finish
    expect(run.events(:function__return).map { |event| event[:function] }).to eq(["Long#step"])
    expect(run.events(:function__entry)).to contain_exactly(include(function: "Long#step", depth: 0))
    run.target.await_off("function__entry", "function__return")
  end

  describe "coverage" do
    source = <<~RUBY
      require "set"
      require "optparse"
      class Order
        def total = 1
        def tax = 2
      end
      class Cart
        def total = 3
      end
      GO = lambda do
        5.times { Order.new.total; Order.new.tax; Cart.new.total; OptionParser.new }
      end
    RUBY
    whole = "#{source}Gate.on(:function__stats)\nGO.call\nGate.done\n"

    it "is the application's own files by default, without the standard library and gems" do
      run = trace(whole, stats)
      expect(calls(run)).to include("Order#total" => 5, "Order#tax" => 5, "Cart#total" => 5)
      expect(run.events(:function__stats).map { |row| row[:file] }.uniq).to all(end_with("app.rb"))
    end

    it "follows globs over names" do
      run = trace(whole, stats, env: { "PROBESCOPE_FUNCTIONS" => "Order#t*" })
      expect(calls(run)).to eq("Order#total" => 5, "Order#tax" => 5)
    end

    it "follows globs over paths" do
      run = trace(whole, stats, env: { "PROBESCOPE_FUNCTIONS" => "*/optparse.rb" })
      expect(calls(run).keys).to all(start_with("OptionParser"))
      run = trace(whole, stats, env: { "PROBESCOPE_FUNCTIONS" => "app.rb, OptionParser#initialize" })
      expect(calls(run)).to include("Order#total" => 5, "Cart#total" => 5, "OptionParser#initialize" => 5)
    end

    it "is everything with PROBESCOPE_FUNCTIONS=all" do
      run = trace(whole, stats, env: { "PROBESCOPE_FUNCTIONS" => "all" })
      expect(calls(run)).to include("Order#total" => 5, "OptionParser#initialize" => 5)
    end

    it "is everything while functions__all is raised" do
      run = trace(whole.sub("Gate.on(", "Gate.on(:functions__all, "), stats, attach: [:functions__all])
      expect(calls(run)).to include("Order#total" => 5, "OptionParser#initialize" => 5)
    end

    it "changes at run time, also under a tracer" do
      run = trace(<<~RUBY, stats)
        #{source}
        Gate.on :function__stats
        GO.call
        Gate.flushed
        Probescope.functions = ["Cart#*"]
        sleep 0.002 until Thread.new { Gate.state(:function__stats) }.value == :on
        Gate.flushed
        GO.call
        Gate.done setting: Probescope.functions
      RUBY
      expect(run.report[:setting]).to eq(["Cart#*"])
      expect(calls(run)).to include("Order#total" => 5, "Cart#total" => 10)
    end

    # A middleware that is created late installs the library again, and so does each hook of a job
    # library.
    it "does not change, and keeps all hooks, when the library is installed again" do
      run = trace(<<~RUBY, {function__entry: %i[function]})
        def work = sleep(0.002)
        Gate.on :function__entry
        40.times { Probescope.install; work }
        Gate.done
      RUBY
      functions = run.events(:function__entry).map { |event| event[:function] }
      expect(functions.tally).to include("Object#work" => 40)
    end

    it "refuses an invalid list of globs" do
      target, = program("begin; Probescope.functions = 3; rescue Probescope::Error => e; puts e.message; end")
      target.wait
      expect(target.out).to match(/wants :own, :all or an Array of globs, not 3/)
    end

    it "includes files that are loaded under a tracer" do
      run = start(<<~RUBY, stats)
        Gate.on :function__stats
        directory = File.dirname(__FILE__)
        File.write("\#{directory}/required.rb",
                   "class Req\\n def self.run = 1\\n define_method(:body) { 1 }\\nend\\n")
        File.write("\#{directory}/loaded.rb", "class Load\\n def self.run = 1\\nend\\nLoad.run\\n")
        require_relative "required"
        load "\#{directory}/loaded.rb"
        eval "class Ev\\n def self.run = 1\\nend", TOPLEVEL_BINDING, "\#{directory}/view.rb", 1
        [Req, Load, Ev].each(&:run)
        Gate.flushed # define_method bodies get hooks after a pause in loading
        4.times { Req.new.body }
        Gate.done
      RUBY
      run.finish
      expect(calls(run)).to eq("Req.run" => 1, "Load.run" => 2, "Ev.run" => 1, "Req#body" => 4)
    end
  end

  # The hook of a loaded file looks at each method in it. An exception, such as that of a timeout, can
  # end that look. The next file's method on the same line is another one.
  it "say how the methods of a file were left when a file before it could not be loaded" do
    run = trace(<<~'RUBY', stats)
      class RubyVM::InstructionSequence
        prepend(Module.new { def trace_points = label == "last" ? raise("no time left") : super })
      end
      def file(name, text) = File.join(__dir__, name).tap { |path| File.write(path, text) }
      late = file("late.rb", "def swallows\n  return\nensure\n  return\nend\ndef last = 1\n")
      whole = file("whole.rb", "def fails\n  raise 'no'\nend\n")
      Gate.on :function__stats
      ended = (load late) rescue $!.message
      load whole
      10.times { fails rescue 1 }
      Gate.done ended: ended
    RUBY
    expect(run.report).to eq(ended: "no time left")
    expect(run.totals(:function__stats)["Object#fails"]).to include(calls: 10, raised: 10)
  end

  it "report that some functions have no hook, when an error ends the look at one" do
    run = trace(<<~'RUBY', stats)
      class RubyVM::InstructionSequence
        prepend(Module.new { def trace_points = label == "lost" ? raise(NoMemoryError) : super })
      end
      class Shop
        def lost = 1
        def kept = 2
      end
      Gate.on :function__stats
      5.times { Shop.new.lost; Shop.new.kept }
      Gate.done probe: Probescope.status[:probes].fetch(:function__stats)
    RUBY
    expect(calls(run)).to include("Shop#kept" => 5)
    expect(calls(run)).not_to include("Shop#lost")
    expect(run.report[:probe]).to match(["degraded", /some functions are not hooked and not counted/])
  end

  it "give file and line of the definition, with the file cut from the left to 62 bytes" do
    long = "a" * 90
    run = trace(<<~RUBY, { function__stats: %i[function file line path calls] })
      eval "class Far\\n\\n  def away = 1\\nend", TOPLEVEL_BINDING, "\#{__dir__}/#{long}.rb", 1
      Gate.on :function__stats
      Far.new.away
      Gate.done
    RUBY
    row = run.events(:function__stats).find { |event| event[:function] == "Far#away" }
    expect(row).to include(line: 3, file: end_with("aaa.rb"))
    expect(row[:file].bytesize).to be <= 62
    expect(row[:path]).to start_with(run.directory)
  end
end
