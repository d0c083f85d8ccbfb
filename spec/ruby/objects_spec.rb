# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

RSpec.describe "object probes", :bpf do
  fields = { object__stats: %i[class file line allocated bytes] }

  it "count the program's allocations by class and line, like GC.stat" do
    run = trace(<<~RUBY, fields)
      class Box; end
      def boxes(n) = (i = 0; (Box.new; i += 1) while i < n)
      def texts(n) = (i = 0; ("text" + "s"; i += 1) while i < n)
      def lists(n) = (i = 0; (list = [i, i]; i += 1) while i < n)
      Gate.on :object__stats
      boxes(10)
      GC.start
      GC.disable
      before = GC.stat(:total_allocated_objects)
      boxes(20_000)
      middle = GC.stat(:total_allocated_objects)
      lists(5000)
      after = GC.stat(:total_allocated_objects)
      texts(5000)
      Gate.done boxes: middle - before, lists: after - middle
    RUBY
    rows = run.totals(:object__stats, %i[class line])
    expect(rows[["Box", 2]][:allocated]).to eq(20_010)
    # GC.stat's own difference includes a Hash or two of the measurement itself.
    expect(run.report[:boxes]).to be_between(20_000, 20_010)
    expect(rows[["Array", 4]][:allocated]).to eq(5000)
    expect(run.report[:lists]).to be_between(5000, 5010)
    # Each call makes two literals and their sum, unless the literals are frozen.
    expect(rows[["String", 3]][:allocated]).to eq(15_000)
    expect(rows[["Box", 2]][:bytes]).to eq(20_010 * 40)
    expect(run.events(:object__stats).find { |row| row[:class] == "Box" }[:file]).to end_with("app.rb")
  end

  # The library's TracePoints and the objects that find their places are allocated on the
  # application's threads, at any line.
  it "leave out the hooks' own allocations, at the attach, when files are loaded and in new fibers" do
    run = trace(<<~RUBY, fields, attach: %i[function__stats])
      class Shop
        100.times { |i| class_eval "def method_\#{i} = nil", __FILE__, __LINE__ }
        100.times { |i| define_method("block_\#{i}") { nil } }
      end
      File.write("\#{__dir__}/later.rb", "class Later; end; def later = Later.new")
      shop = Shop.new
      Gate.on :object__stats, :function__stats
      load "\#{__dir__}/later.rb"
      10.times { Fiber.new { shop.method_1; shop.block_1; later }.resume }
      Gate.done
    RUBY
    allocated = run.totals(:object__stats, :class).transform_values { |row| row[:allocated] }
    expect(allocated).to include("Later" => 10, "Fiber" => 10)
    expect(allocated.slice("TracePoint", "Method", "UnboundMethod", "RubyVM::InstructionSequence", "Object"))
      .to eq({})
  end

  # A sleeping VM runs no job, so the hook has to make the names.
  it "have their names in the next flush, even if the program sleeps right after" do
    run = trace(<<~RUBY, fields)
      made = 400.times.map { |n| Object.const_set("Made\#{n}", Class.new) }
      Gate.on :object__stats, :stats__done
      Gate.flushed(1)
      $stdout.write("report {}\\n")
      $stdout.flush
      made.each { |klass| 3.times { klass.new } }
      sleep
    RUBY
    allocated = run.totals(:object__stats, :class).transform_values { |row| row[:allocated] }
    expect(allocated.select { |name, _| name.start_with?("Made") })
      .to eq(400.times.to_h { |n| ["Made#{n}", 3] })
    expect(run.events(:stats__done).sum { |event| event[:dropped] }).to eq(0)
  end

  it "give a class its present name, also if it had none before" do
    run = trace(<<~RUBY, fields)
      class Box; end
      def made(klass, n) = (i = 0; (klass.new; i += 1) while i < n)
      Gate.on :object__stats
      later = Class.new(Box)
      made(later, 30)
      Named = later
      made(later, 20)
      holder = Class.new
      holder.const_set(:Inner, Class.new)
      made(holder::Inner, 10)
      bare = Class.new(BasicObject)
      made(bare, 5)
      one = Box.new
      def one.own = 1
      made(one.singleton_class.superclass, 7)
      Gate.done
    RUBY
    rows = run.totals(:object__stats, %i[class line]).select { |(_, line), _| line == 2 }
    expect(rows.to_h { |(name, _), row| [name, row[:allocated]] }.except("(internal)"))
      .to eq("(anonymous Box)" => 30, "Named" => 20, "(anonymous)::Inner" => 10,
             "(anonymous BasicObject)" => 5, "Box" => 7)
  end

  # Every allocation runs a collection, objects move, and classes are created at addresses that
  # other classes had.
  it "count exactly under GC.stress and compaction, beside exceptions and calls" do
    more = fields.merge(exception__stats: %i[type line raised], function__stats: %i[function calls])
    run = trace(<<~RUBY, more, within: 200)
      class Box; end
      class Failure < StandardError; end
      def boxes(n) = (i = 0; (Box.new; i += 1) while i < n)
      def passing(n)
        n.times do
          passing = Class.new(Box)
          passing.new
          failing = Class.new(Failure)
          begin raise failing, "no"
          rescue Failure
            nil
          end
        end
      end
      def move = GC.respond_to?(:compact) ? GC.compact : nil
      Gate.on :object__stats, :exception__stats, :function__stats
      GC.auto_compact = true if GC.respond_to?(:auto_compact=)
      5.times do
        boxes(10)
        GC.stress = true
        boxes(3)
        passing(3)
        GC.stress = false
        passing(10)
        move
        boxes(7)
      end
      Gate.done
    RUBY
    allocated = run.totals(:object__stats, :class).transform_values { |row| row[:allocated] }
    expect(allocated).to include("Box" => 100, "(anonymous Box)" => 65, "(anonymous Failure)" => 65)
    expect(run.totals(:exception__stats, :type)["(anonymous Failure)"][:raised]).to eq(65)
    expect(run.totals(:function__stats, :function).transform_values { |row| row[:calls] })
      .to include("Object#boxes" => 15, "Object#passing" => 10, "Object#move" => 5)
    expect(run.target.err).to be_empty
  end

  it "add up to all allocations, including objects that Ruby does not show" do
    run = trace(<<~RUBY, fields)
      def mixed(n) = n.times { |i| { i => i.to_s }; ->{ i }.call; "a\#{i}".to_sym; [i].map(&:to_s); Struct.new(:a) if i % 100 == 0 }
      mixed(100)
      Gate.on :object__stats
      Gate.flushed(1)
      before = GC.stat(:total_allocated_objects)
      mixed(5000)
      Gate.done allocated: GC.stat(:total_allocated_objects) - before
    RUBY
    rows = run.events(:object__stats)
    here = rows.select { |row| row[:line] == 1 && row[:file].end_with?("app.rb") }
               .sum { |row| row[:allocated] }
    # An allocation without its own line (a method cache) has <cfunc> or another line.
    expect(here).to be_within(run.report[:allocated] / 100).of(run.report[:allocated])
    expect(rows.map { |row| row[:class] }).to include("(internal)", "Hash", "Proc", "Array", "String")
  end
end
