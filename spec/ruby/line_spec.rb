# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

RSpec.describe "line probes", :bpf do
  lines = { line: %i[function file line] }
  yjit = system(RbConfig.ruby, "--yjit", "-e", "exit RubyVM::YJIT.enabled?", out: File::NULL, err: File::NULL)

  it "fire once for each line of the application, with its function" do
    source = <<~'RUBY'
      require "optparse"
      class Shop
        def pay(n)
          sum = 0
          n.times do |i|
            sum += i
          end
          sum.to_s
        end
        def self.field(name)
          define_method(name) do
            name.to_s
          end
        end
        field :name
        field :color
        class << self
          def close
            self
          end
        end
      end
      loaded = "#{ENV.fetch("GATE_DIRECTORY")}/loaded.rb"
      File.write(loaded, "class Late\n  def late\n    to_s\n  end\n" \
                         "  define_method(:body) do\n    to_s\n  end\nend\n")
      run = lambda do
        shop = Shop.new
        shop.pay(3)
        shop.name
        shop.color
        Shop.close
        OptionParser.new
      end
      Gate.on :line
      run.call
      require loaded
      Late.new.late
      sleep 0.4 # define_method bodies of new files are searched after a pause in loading
      Late.new.body
      Gate.done
    RUBY
    run = trace(source, lines)
    of = ->(text, nth = 0) { source.lines.each_index.select { |i| source.lines[i].include?(text) }[nth] + 1 }
    seen = run.events(:line).group_by { |event| File.basename(event[:file]) }
    expect(seen.keys).to contain_exactly("app.rb", "loaded.rb")
    expect(seen["app.rb"].map { |event| event.values_at(:function, :line) }.tally).to eq(
      ["Shop#pay", of["sum = 0"]] => 1, ["Shop#pay", of["n.times"]] => 1, ["Shop#pay", of["sum += i"]] => 3,
      ["Shop#pay", of["sum.to_s"]] => 1, ["Shop#name", of["name.to_s"]] => 1,
      ["Shop#color", of["name.to_s"]] => 1, ["Shop.close", of["close"] + 1] => 1
    )
    expect(seen["loaded.rb"].map { |event| event.values_at(:function, :line) }.uniq)
      .to include(["Late#late", 3], ["Late#body", 6])
    expect(seen["loaded.rb"].count { |event| event[:line] == 6 }).to eq(1)
    expect(run.target.err).to be_empty
  end

  it "obey PROBESCOPE_FUNCTIONS" do
    run = trace(<<~RUBY, lines, env: { "PROBESCOPE_FUNCTIONS" => "Order#t*" })
      class Order
        def total
          to_s
        end
        def pay
          to_s
        end
      end
      Gate.on :line
      3.times { Order.new.total; Order.new.pay }
      Gate.done
    RUBY
    expect(run.events(:line).map { |event| event[:function] }.tally).to eq("Order#total" => 3)
  end

  it "attach and detach while another tracer counts calls, and do not disturb it" do
    run = start(<<~RUBY, { function__stats: %i[function calls] })
      HEARD = File.join(__dir__, "heard")
      class Work
        def outer = 3.times { inner }
        def inner
          to_s
        end
        def open
          Gate.on(:line)
          until File.exist?(HEARD)
            to_s
          end
          outer
        end
      end
      work = Work.new
      Gate.on :function__stats
      10.times { work.outer }
      work.open
      $stdout.puts "told"
      $stdout.flush
      Gate.off :line
      10.times { work.outer }
      Gate.done
    RUBY
    run.target.await_on("function__stats")
    # The kernel raises the semaphore before bpftrace's program is attached, so hooks may be in
    # before the tracer counts.
    seen = tracer("usdt:*:probescope:line { @[str(arg0, 64)] = count(); " \
                  "if (@heard == 0) { @heard = 1; printf(\"heard\\n\"); } }", pid: run.target.pid)
    seen.await_line(/^heard$/)
    run.open(:heard)
    run.target.await_line(/\Atold$/)
    expect(seen.finish).to match(/^@\[Work#inner\]: 3$/)
    run.finish
    calls = run.totals(:function__stats).transform_values { |row| row[:calls] }
    expect(calls).to eq("Work#outer" => 21, "Work#inner" => 63, "Work#open" => 1)
  end

  if yjit && RUBY_VERSION < "3.2"
    it "are refused under the YJIT of Ruby 3.1, which would stay slow, unless PROBESCOPE_FORCE=1" do
      run = trace(<<~RUBY, lines, options: ["--yjit"])
        sleep 0.002 while Gate.state(:line) == :off
        Gate.done state: Probescope.status[:probes][:line]
      RUBY
      expect(run.report[:state]).to match(["refused", /never recovers.*PROBESCOPE_FORCE=1/])
      forced = trace(<<~RUBY, lines, options: ["--yjit"], env: { "PROBESCOPE_FORCE" => "1" })
        def work
          to_s
        end
        Gate.on :line
        2.times { work }
        Gate.done
      RUBY
      expect(forced.events(:line).size).to eq(2)
    end
  elsif yjit
    it "leave YJIT's code intact after the detach" do
      target, = program(<<~RUBY, options: ["--yjit", "--yjit-call-threshold=10"])
        def leaf(x) = x
        def loops
          i = 0
          while i < 20_000
            leaf(i)
            i += 1
          end
        end
        # Returns the ns of a loop, the shortest of many.
        def measure
          Array.new(200) do
            began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
            loops
            Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - began
          end.min
        end
        before = measure
        $stdout.puts "measured"
        $stdout.flush
        Gate.on :line
        loops
        Gate.off :line
        measure
        Gate.done before: before, after: measure
      RUBY
      target.await_line(/\Ameasured$/)
      listener = attacher(target, "line")
      listener.attached
      target.await_on("line")
      listener.finish
      report = JSON.parse(target.await_line(/\Areport (.*)/)[1])
      # Without the kick, each call would stay six times as slow as before.
      expect(report["after"]).to be < report["before"] * 2.5
    end
  end
end
