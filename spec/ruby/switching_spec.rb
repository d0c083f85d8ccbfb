# frozen_string_literal: true

require_relative "../../bench/soak"
require_relative "../spec_helper"
require_relative "support/tracing"

RSpec.describe "switching hooks", :bpf do
  it "puts the hooks in within 150 ms of the attach, and out within 150 ms of the detach" do
    attempts do
      target, = program(Soak::LOAD)
      target.ready
      figures = attacher(target, "function__stats", cycles: 20).finish
      expect(figures.map { |cycle| cycle[:hooked_ms] }.sort[figures.size / 2]).to be <= 150
      # The kernel takes some 70 ms to remove a probe before it lowers the semaphore.
      unhooked = figures.map { |cycle| cycle[:unhooked_ms] - cycle[:detach_ms] }
      expect(unhooked.sort[figures.size / 2]).to be <= 150
    end
  end

  it "takes them out when the tracer is killed with SIGKILL" do
    target, = program(Soak::LOAD)
    target.ready
    seen = tracer("usdt:*:probescope:function__stats { @ = count(); }", pid: target.pid)
    seen = seen.attached(target, "function__stats")
    seen.signal(:KILL)
    target.await_off("function__stats")
    expect(target).to be_alive
    expect(target.info.semaphore("function__stats")).to eq(0)
    expect(target.info.state("function__stats")).to eq(:off)
  end

  it "serves two tracers at once, and the second alone after the first has left" do
    target, = program(Soak::LOAD)
    target.ready
    first = attacher(target, "function__stats").tap(&:attached)
    second = attacher(target, "function__stats", "stats__done").tap(&:attached)
    first.finish
    # The kernel raises a semaphore once for a place, for any number of tracers.
    expect(target.info.semaphore("function__stats")).to eq(1)
    expect(target.info.state("function__stats")).to eq(:on)
    flushes = target.info.header[:flushes]
    await("two more flushes") { target.info.header[:flushes] >= flushes + 2 }
    second.puts("count")
    expect(Integer(second.await_line(/\Acount=(\d+)/)[1])).to be >= 0
    second.finish
    target.await_off("function__stats", "stats__done")
  end

  # `rake soak` does this ten thousand times.
  it "attaches and detaches a hundred times, eight tracers at once under the load of eight " \
     "threads, without growing" do
    soak = Soak.new(cycles: 100)
    soak.run
    expect(soak).to be_alive
    expect(soak.switches).to be >= 100
    expect(soak.after.to_h.slice(:files, :threads)).to eq(soak.before.to_h.slice(:files, :threads))
    # Tables that are freed later take 80 to 130 KB of the memory before or after.
    expect(soak.after.memory).to be <= soak.before.memory + 262_144
    expect(soak.after.rss).to be <= soak.before.rss + 8192
  ensure
    soak&.stop
  end

  # Each eval is hooked when it is compiled, and Ruby checks for jobs meanwhile.
  it "attaches and detaches while text is compiled all the time" do
    target, = program(<<~RUBY)
      $stdout.sync = true
      Probescope.functions = :all
      class Cart; end
      METHODS = (1..5).map { |n| "def sum\#{n}(list) = list.map { |one| one + 1 rescue 0 }\\n" }.join
      3.times { Thread.new { loop { Cart.class_eval(METHODS) } } }
      puts "ready"
      loop { sleep 0.01 }
    RUBY
    target.ready
    attacher(target, "function__stats", cycles: 5).finish
    expect(target).to be_alive
    expect(target.err).to be_empty
  end

  # With GC.stress a switch takes longer than a thread's time slice, and the low priority shortens
  # that slice.
  it "lets no other thread run in the middle, so that no exception from another thread is lost" do
    skip "Ruby 4.0 keeps the mask of interrupts elsewhere" if RUBY_VERSION >= "4"
    target, = program(<<~RUBY)
      $stdout.sync = true
      Loud = Class.new(StandardError)
      KEPT = Array.new(100_000) { [] }
      arrived = sent = 0
      Signal.trap(:TERM) do
        puts "report \#{sent} raised in the middle, \#{arrived} arrived"
        exit!(0)
      end
      busy = Thread.handle_interrupt(Loud => :never) do
        Thread.new do
          loop do
            Thread.handle_interrupt(Loud => :immediate) { nil while true }
          rescue Loud
            arrived += 1
          end
        end
      end
      busy.priority = -3
      ours = nil
      in_the_middle = lambda do
        ours ||= Exception.ancestors.take_while { |one| one != Exception }
                                    .find { |one| one.inspect.match?(/probescope/i) } or next
        one, other, again = %i[backtrace full_message backtrace].map do |name|
          ours.method_defined?(name, false)
        end
        one != other && one == again
      end
      GC.stress = true
      puts "ready"
      loop do
        next Thread.pass unless in_the_middle.call
        before = arrived
        sent += 1
        busy.raise(Loud)
        200.times { arrived > before ? break : sleep(0.01) }
      end
    RUBY
    target.ready
    attacher(target, "exception__stats", cycles: 30).finish(within: 240)
    target.signal(:TERM)
    expect(target.await_line(/\Areport (.*)/)[1]).to eq("0 raised in the middle, 0 arrived")
  end

  # A hook allocates objects, each of which starts a collection here.
  it "leaves an application half of its time when one hook takes long" do
    target, = program(<<~RUBY, env: { "PROBESCOPE_FUNCTIONS" => "Many#*" })
      $stdout.sync = true
      KEPT = Array.new(150_000) { [] }
      class Many
        2_000.times { |i| class_eval("def work\#{i} = nil") }
      end
      collections = []
      GC.stress = true
      puts "ready"
      until collections.size == 100
        before = GC.count
        Object.new
        count = GC.count - before
        collections << count if count > 1 || collections.any?
      end
      GC.stress = false
      puts "report \#{collections.sum}"
    RUBY
    target.ready
    attacher(target, "function__stats", wait: false).attached
    all = target.await_line(/\Areport (\d+)/, within: 120)[1].to_i
    # Without the limit it is 5,600. With it, 1,028 on a busy machine: the hooks' part of the time is
    # that of a clock that does not stop while the thread waits for a CPU.
    expect(all).to be_between(110, 2_800)
  end

  it "attaches and detaches 10 times with bpftrace" do
    target, = program(Soak::LOAD)
    target.ready
    10.times do
      program = "usdt:*:probescope:function__stats { @calls = sum(arg3); } " \
                "usdt:*:probescope:stats__done { @done = count(); }"
      seen = tracer(program, pid: target.pid)
      seen.attached(target, "function__stats", "stats__done")
      seen.finish
      target.await_off("function__stats", "stats__done")
    end
    expect(target).to be_alive
    expect(target.err).to be_empty
  end

  it "switches only the probes that are traced" do
    target, = program(Soak::LOAD)
    target.ready
    attacher(target, "exception__stats").attached
    expect(target.info.state("exception__stats")).to eq(:on)
    others = target.info.probes.except("exception__stats").values.map { |probe| probe[:state] }.uniq
    expect(others - %i[off unsupported]).to eq([])
  end
end
