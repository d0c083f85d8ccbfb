# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"
require "probescope/commands/flow"

# Commands that print events as they come, on Ruby processes that work on an order and print what
# they did.
RSpec.describe "The live commands on a Ruby process", :bpf do
  before { @folder = Dir.mktmpdir }
  after { FileUtils.rm_rf(@folder) }

  # Starts a Ruby process that runs this text and reads orders from stdin.
  def worker(text)
    script = File.join(@folder, "worker.rb")
    File.write(script, text)
    target(script, stdin: true, env: {"PROBESCOPE_FUNCTIONS" => "#{@folder}/**"}).ready
  end

  # Waits until the process has flushed this number of times.
  def await_intervals(ruby, count)
    flushes = ruby.info.header[:flushes]
    await("#{count} flushes", within: 60) { ruby.info.header[:flushes] >= flushes + count }
  end

  def lines_of(command) = command.out.lines.map { |line| JSON.parse(line) }

  describe "stat" do
    work = <<~RUBY
      class Work
        def step(number) = number + 1

        def fail_at(depth) = depth.zero? ? raise(ArgumentError, "x") : fail_at(depth - 1)
      end

      $stdout.sync = true
      Thread.new { sleep 0.01 while true } # hooks are switched only in a running Ruby
      puts "ready"
      $stdin.each_line do
        work = Work.new
        cpu = -> { Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond) }
        began, gc, objects = cpu.call, GC.total_time, GC.stat(:total_allocated_objects)
        20_000.times { |number| work.step(number) }
        500.times do
          work.fail_at(99)
        rescue ArgumentError => e
          e.backtrace
        end
        300_000.times { Object.new }
        GC.start
        puts "worked \#{cpu.call - began} \#{GC.total_time - gc} " \\
             "\#{GC.stat(:total_allocated_objects) - objects}"
      end
    RUBY

    it "counts what the process did: calls, raises, backtraces, objects, collections" do
      ruby = worker(work)
      whole = probescope_start("stat", "-p", ruby.pid, "--json")
      light = probescope_start("stat", "-p", ruby.pid, "--json", "--light")
      ruby.await_on("function__stats", "object__stats", "sample", "gc__done")
      await("their intervals", within: 60) { [whole, light].all? { |command| command.out.lines.any? } }
      ruby.puts("work")
      cpu_ns, gc_ns, objects = ruby.await_line(/\Aworked (.*)$/, within: 60)[1].split.map(&:to_i)
      await_intervals(ruby, 2)
      [whole, light].each { |command| expect(command.stop(:INT).exitstatus).to eq(0), command.err }
      sum = ->(command, field) { lines_of(command).sum { |line| line[field] } }

      # fail_at calls itself: 100 calls for each raise.
      expect(sum[whole, "calls"]).to eq(20_000 + (500 * 100))
      # The process makes few objects besides these in the seconds before and after. The VM's count
      # includes a few objects of probescope.
      expect(sum[whole, "allocations"]).to be_between(objects - 100, objects * 1.1)
      expect(sum[whole, "bytes"]).to be_between(objects * 40, objects * 1.1 * 80)
      [whole, light].each do |command|
        expect(sum[command, "raises"]).to eq(500)
        # 500 backtraces of 100 frames take at least 10 us each for their strings. The figure is
        # wall time, and the few measured backtraces count for the rest: CPU time of other programs
        # during one is counted several times.
        expect(sum[command, "backtrace_ns"]).to be_between(500 * 10_000, cpu_ns * 20)
        expect(sum[command, "gc_ns"]).to be > gc_ns * 0.8
        expect(sum[command, "cpu_ns"]).to be > cpu_ns * 0.9
        expect(sum[command, "samples"]).to be > 0
        expect(lines_of(command)).to all(include("pids" => [ruby.pid], "seconds" => be_between(0.5, 5)))
      end
      expect(lines_of(light).map { |line| line.values_at("calls", "allocations", "bytes") }.uniq)
        .to eq([[nil, nil, nil]])
    end

    it "ends with the process, and without an error when its reader closes the output" do
      process = host_target("--flushes", 60)
      command = probescope_start("stat", "-p", process.pid)
      expect(command.wait.exitstatus).to eq(0)
      expect(command.out.lines.size).to be > 20
      expect(command.err).to include("process #{process.pid} ended while it was traced")

      process = host_target
      child = keep(Support::Child.new("sh", "-c",
                                      "#{RbConfig.ruby} #{Support::EXE} stat -p #{process.pid} | head -3",
                                      env: Support.command_env))
      expect(child.wait.exitstatus).to eq(0)
      expect([child.out.lines.size,
              child.err.lines.grep_v(/\Aprobescope: \d+ (samples|events|exception details) /)])
        .to eq([3, []])
      await("the end of bpftrace") { tracers_of(process.pid).empty? }
    end
  end

  describe "flow" do
    work = <<~RUBY
      class Shop
        def checkout
          total
          reserve
        end

        def total = price(1) + price(2)
        def price(number) = number

        def reserve
          refuse
        rescue ArgumentError
          wait_a_little
        end

        def refuse = raise(ArgumentError)
        def wait_a_little = sleep(0.05)
        def without_end = without_end()

        def overflow
          without_end
        rescue SystemStackError
          nil
        end

        def last(number) = number
      end

      $stdout.sync = true
      shop = Shop.new
      queue = Queue.new
      other = Thread.new { shop.price(3) while queue.pop }
      Thread.new { sleep 0.01 while true } # hooks are switched only in a running Ruby
      Thread.pass until other.native_thread_id
      puts "other \#{other.native_thread_id}", "ready"
      $stdin.each_line do |order|
        case order.chomp
        when "shop"
          queue << true
          shop.checkout
        when "burst"
          shop.overflow
          60_000.times { |number| shop.last(number) }
        when "fiber"
          shop.total
          Fiber.new { shop.price(4) }.resume
        end
        puts "did \#{order}"
      end
    RUBY

    def order(ruby, what)
      ruby.puts(what)
      ruby.await_line(/\Adid #{what}$/, within: 60)
      await_intervals(ruby, 2)
    end

    def seconds(lines) = lines.select { |line| line["event"] == "interval" }

    # Returns the finished calls, in the order of their ends.
    def finished(lines)
      lines.reject { |line| %w[enter interval].include?(line["event"]) }.map do |line|
        [line["depth"], line["function"], line["outcome"]]
      end
    end

    def receiving(lines, *options)
      flow = Probescope::Commands::Flow.new
      flow.send(:parse, ["-p", "7", *options])
      flow.send(:prepare)
      # the example has no helper to stop
      allow(flow).to receive(:enough) { flow.instance_variable_set(:@closed, true) }
      lines.each { |line| flow.send(:receive, line) }
      yield flow if block_given?
    end

    # For calls that began before the hooks came in, there are only returns.
    it "begins with the entry of a call" do
      lines = ["= 0 7 1000 1000 0 0 0", "< 1 7 7 1 1 2000000 2000000 0\tShop#price",
               "< 2 7 7 1 0 5000 4000 0\tShop#pay", "> 3 7 7 1 0 3\tShop#pay\t/shop.rb",
               "< 4 7 7 1 0 5000 4000 0\tShop#pay", "= 4 7 1000 2000 1000 10 1"]
      expect { receiving(lines) }.to output(<<~TEXT).to_stdout
        flow of process 7, thread 7
          ELAPSED      SELF  CALL
          5.00 us   4.00 us  Shop#pay  /shop.rb:3
      TEXT
    end

    # The first seconds have no call of the function, and --top ends the trace in mid-second.
    it "gives the begin of the trace when the first call comes late and --top ends it" do
      lines = ["= 0 7 1000 1000 0 0 0", "= 0 7 1000 2000000000 1000 100 10",
               "> 1 7 7 1 0 3\tShop#pay\t/shop.rb", "< 2 7 7 1 0 50 40 0\tShop#pay",
               "= 2 7 2000000000 3000000000 1000 100 10"]
      told = lambda do |*options|
        receiving(lines, "--top", "1", *options) { |flow| flow.send(:finish, nil) }
      end
      expect { told.call("--json") }.to output(/"call".*\n.*"interval".*"end":null.*\n\z/).to_stdout
      expect { told.call }.to output(/pay.*\n\nfrom [\d:.]+ until the last line\n\z/).to_stdout
    end

    # bpftrace reads each CPU's buffer in turn.
    it "ends a second after all calls of that second, in whatever order they come" do
      lines = ["= 0 7 1000 1000 0 0 0", "= 2 7 1000 2000 1000 100 10", "< 2 7 7 1 0 50 40 0\tShop#pay",
               "> 1 7 7 1 0 3\tShop#pay\t/shop.rb", "> 3 7 7 1 0 3\tShop#pay\t/shop.rb",
               "= 4 7 2000 3000 1000 100 10", "< 4 7 7 1 0 50 40 0\tShop#pay", "= 4 7 3000 4000 1000 100 10"]
      events = lambda do
        lines_of(Struct.new(:out).new($stdout.string)).map { |line| [line["event"], line["cpu_share"]] }
      end
      expect do
        receiving(lines, "--json")
        expect(events.call).to eq([["call", nil], ["interval", 0.1], ["enter", nil], ["leave", nil],
                                   ["interval", 0.1], ["interval", 0.1]])
      end.to output.to_stdout
    end

    it "shows the calls of one thread; of one function; long ones; through exceptions, losses, " \
       "SystemStackError and fibers" do
      ruby = worker(work)
      other = ruby.await_line(/\Aother (\d+)$/)[1].to_i
      flows = {all: [], function: %w[--function Shop#total], long: %w[--min 20ms], other: ["--thread", other]}
      flows.transform_values! { |options| probescope_start("flow", "-p", ruby.pid, "--json", *options) }
      ruby.await_on("function__entry", "function__return")
      await("all of them") { tracers_of(ruby.pid).size == flows.size }
      await_intervals(ruby, 4)
      order(ruby, "shop")
      all, *others = flows.values
      others.each { |command| expect(command.stop(:INT).exitstatus).to eq(0), command.err }

      tree = [[2, "Shop#price", "returned"], [2, "Shop#price", "returned"], [1, "Shop#total", "returned"],
              [2, "Shop#refuse", "raised"], [2, "Shop#wait_a_little", "returned"],
              [1, "Shop#reserve", "returned"], [0, "Shop#checkout", "returned"]]
      expect(finished(lines_of(all))).to eq(tree)
      expect(seconds(lines_of(all)))
        .to all(include("seconds" => be_between(0.5, 5), "cpu_share" => be_positive))
      expect(seconds(lines_of(all)).each_cons(2))
        .to all(satisfy { |one, other| one["end"] == other["begin"] })
      expect(finished(lines_of(flows[:function]))).to eq(tree.first(3))
      expect(finished(lines_of(flows[:long]))).to eq(tree.last(3))
      expect(finished(lines_of(flows[:other]))).to eq([[0, "Shop#price", "returned"]])
      expect(lines_of(flows[:other])).to all(include("thread_id" => other))
      checkout = lines_of(all).find { |line| line["function"] == "Shop#checkout" }
      expect(checkout).to include("event" => "enter", "thread_id" => ruby.pid)
      expect(work.lines[checkout["line"] - 1]).to include("def checkout")
      expect(lines_of(all).reverse.find { |line| line["event"] == "leave" }["elapsed_ns"]).to be > 50_000_000

      # The reader is stopped, like a halted terminal. The process goes on, and flow counts the lost
      # events.
      all.signal(:STOP)
      ruby.puts("burst")
      ruby.await_line(/\Adid burst$/, within: 120)
      all.signal(:CONT)
      await("the losses", within: 120) { all.out.include?('"event":"lost"') }
      await_intervals(ruby, 2)
      order(ruby, "fiber")
      ruby.close_stdin
      expect(all.wait.exitstatus).to eq(0)
      *total, in_fiber = (lines_of(all) - seconds(lines_of(all))).last(5)
      expect(finished([*total, in_fiber]))
        .to eq([[1, "Shop#price", "returned"], [1, "Shop#price", "returned"],
                [0, "Shop#total", "returned"], [0, "Shop#price", "returned"]])
      expect(in_fiber["context_id"]).not_to eq(total.last["context_id"])
      expect(lost_by(all)).to be >= lines_of(all).sum { |line| line.fetch("count", 0) }
      expect(all.err).to match(/ended while it was traced/)
    end

    # How many events were lost, as the command says at its end.
    def lost_by(command)
      found = command.err[/(\d+) events were lost between the kernel and bpftrace/, 1]
      expect(found).not_to be_nil, command.err
      found.to_i
    end

    # The first and the last CPU that the examples may use: one, where there are no more.
    def cpus = File.read("/proc/self/status")[/^Cpus_allowed_list:\s*(.*)/, 1].scan(/\d+/).minmax_by(&:to_i)

    def pin(ruby, cpu) = expect(system("taskset", "-acp", cpu, ruby.pid.to_s, out: File::NULL)).to be(true)

    # bpftrace 0.17 has a buffer for each CPU, and the kernel reports a loss with the next event of
    # the same CPU. Here nothing happens there after the loss. The command counts it nevertheless.
    it "counts the last events of a process, which were lost and which bpftrace does not report" do
      ruby = worker(work)
      command = probescope_start("flow", "-p", ruby.pid, "--json")
      ruby.await_on("function__entry", "function__return")
      await("bpftrace") { tracers_of(ruby.pid).any? }
      await_intervals(ruby, 3)
      order(ruby, "shop")
      busy, other = cpus
      pin(ruby, busy)
      tracer = tracers_of(ruby.pid).first[/\d+/].to_i
      Process.kill(:STOP, tracer)
      ruby.puts("burst")
      ruby.await_line(/\Adid burst$/, within: 120)
      pin(ruby, other)
      ruby.close_stdin
      expect(ruby.wait.exitstatus).to eq(0)
      Process.kill(:CONT, tracer)
      expect(command.wait.exitstatus).to eq(0), command.err

      lines = lines_of(command)
      counted = lines.sum { |line| line.fetch("count", 0) }
      expect(counted).to be_positive
      expect(lost_by(command)).to be >= counted
      # Each call of the burst has an entry and a return. A line "call" has both.
      shown = lines.select { |line| line["function"] == "Shop#last" }
                   .sum { |line| line["event"] == "call" ? 2 : 1 }
      expect(shown + counted).to be >= 2 * 60_000
    end
  end
end
