# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

RSpec.describe "the name of a method", :bpf do
  # One method of each kind. Each call takes 3 ms of CPU, raises, and calls caller.
  methods = <<~RUBY
    def work
      ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.003
      nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < ends
      (raise(ArgumentError) rescue nil)
      caller(1, 1)
    end
  RUBY
  let(:source) { <<~RUBY }
    WORK = #{methods.dump}
    class Shop; class_eval(WORK, __FILE__, 100); class << self; class_eval(WORK, __FILE__, 200); end; end
    module Tools; module_eval(WORK, __FILE__, 300); end
    class Box; include Tools; end
    module Free; class << self; class_eval(WORK, __FILE__, 400); end; end
    anonymous = Class.new(Shop) { class_eval(WORK, __FILE__, 500) }
    nameless = Class.new { class_eval(WORK, __FILE__, 600) }
    inner = nameless.const_set(:Inner, Class.new { class_eval(WORK, __FILE__, 700) })
    anonymous.singleton_class.class_eval(WORK, __FILE__, 800)
    single = Shop.new.tap { |shop| shop.singleton_class.class_eval(WORK, __FILE__, 900) }
    nobodys = anonymous.new.tap { |one| one.singleton_class.class_eval(WORK, __FILE__, 1000) }
    class Shop; end
    Shop.class_eval(WORK.sub("work", "old_work"), __FILE__, 1100)
    class Shop; alias aliased old_work; end
    spin = eval("-> { " + WORK.lines[1..-2].join + " }", nil, __FILE__, 1200)
    Shop.define_method(:defined, &spin)
    by_name = eval("-> { " + WORK.lines[1..-2].join + " }", nil, __FILE__, 1300)
    single.define_singleton_method(:defined_alone, &by_name)
    module Grown; refine(String) { class_eval(WORK, __FILE__, 1400) }; end
    using Grown
    eval(WORK, TOPLEVEL_BINDING, __FILE__, 1500)

    all = [Shop.new, Shop, Box.new, Free, anonymous.new, nameless.new, inner.new, anonymous, single, nobodys]
    Gate.on :sample__stats, :function__stats, :function__slow1ms, :exception__stats, :backtrace__done, :line
    15.times do
      all.each(&:work)
      Shop.new.aliased
      Shop.new.defined
      single.defined_alone
      "".work
      work
      eval("class Late\n" + WORK.lines[1..-2].join + "end", TOPLEVEL_BINDING, __FILE__, 1600)
    end
    Gate.done
  RUBY

  names = { 100 => "Shop#work", 200 => "Shop.work", 300 => "Tools#work", 400 => "Free.work",
            500 => "(anonymous Shop)#work", 600 => "(anonymous Object)#work",
            700 => "(anonymous)::Inner#work", 800 => "(anonymous Shop).work",
            900 => "#<Shop>.work", 1000 => "#<(anonymous Shop)>.work",
            1100 => "Shop#old_work", 1200 => "Shop#defined", 1300 => "#<Shop>.defined_alone",
            1400 => "String#work", 1500 => "Object#work" }
  fields = { sample__stats: %i[function file line self], function__stats: %i[function line calls],
             function__slow1ms: %i[function line], exception__stats: %i[type function line raised],
             backtrace__done: %i[function line], line: %i[function line] }

  # Groups the names by the hundred of the event's line: {100 => ["Shop#work"]}. Ruby's own methods
  # that are written in Ruby are left out.
  def named(run, probe)
    events = run.events(probe).reject do |event|
      event[:line] < 100 || event[:file]&.start_with?("<internal:")
    end
    events.group_by { |event| event[:line] / 100 * 100 }
          .transform_values { |events| events.map { |event| event[:function] }.uniq.sort }
  end

  it "is the same in every probe, and contains no address" do
    run = trace(source, fields)
    methods = names.transform_values { |name| [name] }
    expected = methods.merge(1600 => ["<class:Late>"])
    expect(named(run, :function__stats)).to eq(methods)
    expect(named(run, :function__slow1ms)).to eq(methods)
    expect(named(run, :exception__stats)).to eq(expected)
    # The first line of evaluated text is outside the class. Ruby 3.4 calls it "<compiled>".
    outside = /\A<(main|compiled)>\z/
    expect(named(run, :line)).to match(expected.merge(1600 => ["<class:Late>", a_string_matching(outside)]))
    # Ruby's frame of a define_method body names the code around the block, not the method that
    # runs.
    blocks = { 1200 => ["block in <main>"], 1300 => ["block in <main>"] }
    expect(named(run, :backtrace__done)).to eq(expected.merge(blocks))
    # A sample may miss one of them. In a rescue, Ruby's frame of a block is that of the rescue.
    sampled = named(run, :sample__stats)
    sampled.fetch(1600, []).reject! { |name| name.match?(outside) }
    expect(expected).to include(sampled.except(*blocks.keys).reject { |_, found| found.empty? })
    expect(sampled.slice(*blocks.keys).values.flatten).to all(end_with("block in <main>"))
    expect(sampled.size).to be >= 8
    expect(run.out).not_to match(/0x\h/)
  end

  it "is one row for 10,000 objects that were given the method, and for text that is evaluated " \
     "again and again" do
    run = trace(<<~RUBY, { function__stats: %i[function line calls], exception__stats: %i[type line raised] })
      def give(object)
        def object.work(deep = false) = deep ? (raise(Class.new(ArgumentError)) rescue 1) : 2
        object
      end
      Gate.on :function__stats, :exception__stats
      Gate.flushed(1)
      10_000.times { |n| give(Object.new).work(n % 10 == 0) }
      1_000.times { Module.new.module_eval("def self.again = 3; again", __FILE__, 50) }
      Gate.done used: Probescope.status[:memory_used], dropped: Probescope.status[:rows_dropped]
    RUBY
    expect(run.totals(:function__stats, %i[function line]))
      .to include(["#<Object>.work", 2] => { calls: 10_000 }, ["(anonymous).again", 50] => { calls: 1_000 })
    expect(run.totals(:exception__stats, %i[type line]))
      .to eq(["(anonymous ArgumentError)", 2] => { raised: 1_000 })
    rows = run.events(:stats__done).map { |event| event[:rows] }
    expect(rows).to all(be <= 6)
    expect(run.report[:dropped]).to eq(0)
  end

  # ActionView defines methods of this kind: in an anonymous class, from a template's text. The
  # template's first line is line 1 of the body.
  it "of a template has its anonymous class, and the template's file" do
    places = { function__stats: %i[function file line calls], sample__stats: %i[function file self] }
    run = trace(<<~RUBY, places)
      class Base; end
      TEMPLATE = File.join(__dir__, "app/views/orders/show.html.erb")
      METHOD = <<~TEXT
        def _app_views_orders_show_html_erb__42_7
          ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.01
          nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < ends
        end
      TEXT
      def compile = Class.new(Base) { class_eval(METHOD, TEMPLATE, 0) }
      Gate.on :function__stats, :sample__stats
      Gate.flushed(1) # the interval has begun
      view = compile.new
      50.times { view._app_views_orders_show_html_erb__42_7 }
      2.times { compile.new._app_views_orders_show_html_erb__42_7 }
      Gate.done
    RUBY
    name = "(anonymous Base)#_app_views_orders_show_html_erb__42_7"
    told, sampled = %i[function__stats sample__stats].map do |probe|
      run.events(probe).select { |event| event[:function].include?("_erb_") }
    end
    file = end_with("/app/views/orders/show.html.erb")
    expect(told.map { |event| event.values_at(:function, :file, :line) }.uniq).to match([[name, file, 0]])
    expect(told.sum { |event| event[:calls] }).to eq(52)
    expect(sampled.map { |event| event.values_at(:function, :file) }.uniq).to match([[name, file]])
  end

  it "is different in each class when one definition is evaluated in several" do
    run = trace(<<~RUBY, { function__stats: %i[function line calls] })
      module Kind
        def self.included(klass) = klass.class_eval { def both = yield }
      end
      class A; include Kind; end
      class B; include Kind; end
      Gate.on :function__stats
      A.new.both { B.new.both { A.new.both { 1 } } }
      Gate.done
    RUBY
    expect(run.totals(:function__stats)).to include("A#both" => { calls: 2 }, "B#both" => { calls: 1 })
  end

  it "is the method's, and its calls count once, whichever method defines it" do
    fields = { function__stats: %i[function line calls] }
    source = <<~RUBY
      class A
        def define = self.class.class_eval { def defined = 1 }
        define_method(:define_in_a_block) { self.class.class_eval { def defined_in_a_block = 2 } }
      end
      a = A.new
      work = proc { a.define; a.define_in_a_block; 2.times { a.defined; a.defined_in_a_block } }
      $VERBOSE = nil
      work.call if ARGV.include?("before")
      Gate.on :function__stats
      3.times(&work)
      Gate.done
    RUBY
    runs = [[], ["before"]].map { |args| trace(source, fields, args: args) }
    expect(runs.map { |run| run.totals(:function__stats) }).to all(
      include("A#define" => { calls: 3 }, "A#define_in_a_block" => { calls: 3 }, "A#defined" => { calls: 6 },
              "A#defined_in_a_block" => { calls: 6 })
    )
  end
end
