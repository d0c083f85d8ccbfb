# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

# The objects that the probes create among the application's objects.
RSpec.describe "the heap of a traced application", :bpf do
  # Returns what the program reports with these probes' hooks in.
  def report(probes, source, options: [])
    on = "Gate.on(#{probes.map { |probe| ":#{probe}" }.join(", ")})"
    target, = program("#{on}\n#{source}", options: options)
    attacher(target, *probes.map(&:to_s)) # the program may end before the attacher reports the attach
    JSON.parse(target.await_line(/\Areport (.*)/, within: 120)[1], symbolize_names: true)
  end

  everything = %i[function__stats functions__all line exception__stats object__stats sample__stats
                  backtrace__done]

  # Ruby's own test_each_object_no_garbage.
  it "gives ObjectSpace.each_object no Array or Hash that cannot be inspected, while functions are hooked",
     full: "computes for minutes beside other tests" do
    seen = report(everything, <<~RUBY)
      Shop = Class.new
      GC.disable
      seen = 40.times.map do |n|
        eval("class Shop; def work\#{n} = 1; define_method(:made\#{n}) { |x| x }; end; Shop.new.made\#{n}(1)")
        kept = [Array, Hash].flat_map do |type|
          [].tap { |list| ObjectSpace.each_object(type) { |one| list << one if one.size < 20 } }
        end
        kept.map { |one| one.inspect.class }.uniq
      end
      Gate.done seen: seen.uniq
    RUBY
    expect(seen).to eq(seen: [["String"]])
  end

  # Without a tracer, the library still has a hook on loaded files if there is a YJIT.
  it "gives it no such object without a tracer" do
    target, = program(<<~RUBY)
      GC.disable
      20.times { |n| eval("n + \#{n}") }
      kept = []
      ObjectSpace.each_object(Array) { |one| kept << one if one.size < 20 }
      Gate.done seen: kept.map { |one| one.inspect.class }.uniq
    RUBY
    expect(JSON.parse(target.await_line(/\Areport (.*)/)[1])).to eq("seen" => ["String"])
  end

  # Ruby has no write barrier for a TracePoint on a define_method body;
  # GC.verify_internal_consistency aborts where one is missing.
  it "is consistent when bodies of define_method are hooked, also those with two names" do
    seen = report(%i[function__stats functions__all], <<~RUBY)
      class Shop
        30.times { |n| define_method(:"made\#{n}") { n } }
        10.times { |n| alias_method :"also\#{n}", :"made\#{n}" }
      end
      6.times { GC.start }
      30.times do |n|
        eval("class Shop; define_method(:later\#{n}) { n }; end")
        Shop.new.made1
        GC.verify_internal_consistency
      end
      Gate.flushed
      GC.start(full_mark: false)
      GC.verify_internal_consistency
      GC.compact if GC.respond_to?(:compact)
      GC.verify_internal_consistency
      Gate.done made: Shop.new.made3, also: Shop.new.also3
    RUBY
    expect(seen).to eq(made: 3, also: 3)
  end

  # The library finds such a body by Method#hash, which in Ruby 3.1 depends on addresses. With two
  # TracePoints on a body, Ruby 3.1 crashes when the second one is disabled. The garbage places the
  # classes where a compaction moves them.
  it "has one hook on a body of define_method, also after a compaction" do
    run = trace(<<~'RUBY', { function__stats: %i[function calls], functions__all: [] })
      garbage = Array.new(50_000) { Object.new }
      class Shop; end
      shops = Array.new(100) { |n| Class.new(Shop) { define_method(:"made#{n}") { n } } }
      hashes = -> { shops.map.with_index { |shop, n| shop.instance_method(:"made#{n}").hash } }
      Gate.on(:function__stats)
      before = hashes.call
      garbage.clear
      GC.compact if GC.respond_to?(:compact)
      changed = before.zip(hashes.call).count { |one, other| one != other }
      eval("class Shop; define_method(:later) { 1 }; end")
      Gate.flushed # the walk over new bodies begins 0.2 s later
      shops.each_with_index { |shop, n| shop.new.public_send(:"made#{n}") }
      Gate.done changed: changed
    RUBY
    expect(run.report[:changed]).to be > 50 if RUBY_VERSION < "3.2"
    calls = run.totals(:function__stats).select { |name, _| name.include?("#made") }
    expect(calls.map { |_, row| row[:calls] }.tally).to eq(1 => 100)
    run.tracer.stop(:INT)
    await("its end or the hooks out") do
      !run.target.alive? || run.target.info.state("function__stats") == :off
    end
    expect(run.target).to be_alive
    expect(run.target.err).to be_empty
  end

  # Ruby's own test_kwarg_eval_memory_leak allows RSS to grow by a fifth.
  it "keeps nothing of evaluated text or of objects with singleton methods" do
    live = report(%i[function__stats functions__all line], <<~'RUBY')
      class Held; end
      def lines(n) = n.times { eval("Hash.new.size") }
      def blocks(n) = n.times { eval("[1].each { |one| one }") }
      def methods_anew(n) = n.times { |i| Object.class_eval("def evaluated = #{i}"); evaluated }
      def singletons(n) = n.times { object = Held.new; def object.work = 1; object.work }
      def live(work)
        send(work, 100)
        GC.start
        before = GC.stat(:heap_live_slots)
        send(work, 6000)
        Gate.flushed
        3.times { GC.start }
        GC.stat(:heap_live_slots) - before
      end
      singletons(100)
      GC.start
      Gate.done lines: live(:lines), blocks: live(:blocks), singletons: live(:singletons),
                methods: live(:methods_anew), held: ObjectSpace.each_object(Held).count
    RUBY
    expect(live[:held]).to be < 20
    # Each object that stays has an ISeq, a String, a TracePoint and a Hash. At most 256 stay for
    # their lines, and 4096 with methods.
    expect(live.values_at(:lines, :blocks)).to all(be < 6000)
    expect(live[:singletons]).to be < 6000
    expect(live[:methods]).to be < 6 * 6000
  end

  # The program is that of Ruby's test. Before 3.3, Ruby itself leaks these keywords.
  it "grows by less than a fifth while texts are evaluated 100,000 times" do
    probes = everything - %i[line] + %i[exception__detail gc__done stats__done]
    seen = report(probes, <<~'RUBY', options: ["--disable=gems"])
      def rss = Integer(File.read("/proc/self/status")[/VmRSS:\s+(\d+)/, 1])
      text = "Hash.new(capacity: 123)" # from 3.4 on Hash.new accepts only this keyword
      text = "Hash.new(foo: 123)" if RUBY_VERSION < "3.4"
      text = "Hash.new.size" if RUBY_VERSION < "3.3"
      20_000.times { eval(text) } # Ruby 3.4 needs 4 MB for the first ones
      GC.start
      before = rss
      100_000.times { eval(text) }
      GC.start
      Gate.done before: before, after: rss
    RUBY
    expect(seen[:after]).to be < 1.2 * seen[:before]
  end
end
