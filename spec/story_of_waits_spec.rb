# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"

# What `bin/demo waits` tells, in each language. The commands' figures are compared with the
# programs' own. A program begins its work when the trace's interval has begun, and ends before the
# interval does.
RSpec.shared_examples "the story of waits" do |language|
  suffix, dot = language.values_at(:suffix, :dot)
  by_process = suffix == ".rb" && RUBY_VERSION.between?("3.2", "3.4.99")
  probe = by_process ? "wait__stats" : "function__here"
  # Ruby 3.2 does not tell who ends a wait.
  tells_holders = !(by_process && RUBY_VERSION.start_with?("3.2."))
  onelock, mkdir = %w[onelock mkdir].map { |name| "examples/#{name}#{suffix}" }

  # Traces the program while it does this work. Returns the command's JSON and the program's counts.
  def traced(command, probe, *work)
    Dir.mktmpdir do |folder|
      process = gated(folder, *work.map(&:to_s))
      started = probescope_start(*command, "-p", process.pid, "-d", 600, "--json")
      await_interval(process, probe)
      process.signal(:USR2)
      process.await_line(/\Aworked$/, within: 60)
      expect(started.stop(:INT).exitstatus).to eq(0), started.err
      counts = process.out.scan(/\b(\w+)=([\d.]+)/)
      return [JSON.parse(started.out), counts.to_h.transform_values(&:to_f)]
    end
  end

  # A bpftrace that waits for events has attached all its probes.
  def await_interval(process, probe)
    await("bpftrace", within: 60) { tracers_of(process.pid).any? }
    process.await_on(probe)
    await("it is attached", within: 60) do
      tracers_of(process.pid).all? do |path|
        File.read(File.join(File.dirname(path), "wchan")).include?("epoll")
      end
    end
    flushes = process.info.header[:flushes]
    await("its interval") { process.info.header[:flushes] >= flushes + 3 }
  end

  # A process that waits for SIGUSR2, runs the example, and prints "worked" when the rows have names.
  # The example's clock of waits leaves out the time in which the thread could run and had no CPU, as
  # the kernel's figures do. Ruby's process also counts how often the kernel took the CPU away in the
  # methods with the lock because the thread was not ready to run.
  def gated(folder, script, *options)
    program = File.join(folder, "gated#{File.extname(script)}")
    File.write(program, script.end_with?(".rb") ? <<~RUBY : <<~PYTHON)
      $switches = Queue.new
      module Switches
        def switches(sign = 1)
          before = blocked
          yield.tap { $switches << (blocked - before) * sign }
        end
        def blocked = File.read("/proc/thread-self/status")[/^voluntary_ctxt_switches:\\s*(\\d+)/, 1].to_i
      end
      class Desk
        prepend(Module.new { include Switches
                             def ship(...) = switches { super }
                             def find = switches { super } })
      end
      class Carrier
        prepend(Module.new { include Switches
                             def number(...) = switches(-1) { super } })
      end
      class Waits
        prepend(Module.new do
          def asks = queued.then { |before| [*super, before] }
          def got(asked) = super.tap { @seconds -= queued - asked.last }
          def queued = File.read("/proc/thread-self/schedstat").split[1].to_i / 1e9
        end)
      end
      trap("USR2") { $go = true }
      $stdout.sync = true
      puts "ready"
      sleep 0.01 until $go
      ARGV.replace(#{options})
      load #{script.inspect}
      sleep 1.2
      puts "switches=\#{Array.new($switches.size) { $switches.pop }.sum}" unless $switches.empty?
      puts "worked"
      sleep
    RUBY
      import signal, sys, time
      sys.path.insert(0, "examples")
      import #{File.basename(script, ".py")} as example

      def queued():
          with open("/proc/thread-self/schedstat") as file:
              return int(file.read().split()[1]) / 1e9

      if hasattr(example, "Waits"):
          class Waits(example.Waits):
              def asks(self):
                  return queued(), *super().asks()

              def got(self, asked):
                  super().got(asked[1:])
                  self.seconds -= queued() - asked[0]

          example.Waits = Waits
      going = []
      signal.signal(signal.SIGUSR2, lambda *_: going.append(1))
      print("ready", flush=True)
      while not going:
          time.sleep(0.01)
      sys.argv[1:] = #{options}
      example.main()
      time.sleep(1.2)
      print("worked", flush=True)
      time.sleep(600)
    PYTHON
    target(program).ready
  end

  # Numbers of the lines of the first function in the file that begins like this.
  def lines_of(script, definition)
    lines = File.readlines(File.join(Support::ROOT, script))
    first = lines.index { |line| line.lstrip.start_with?(definition) }
    indent = ->(line) { line[/\A */].size }
    size = lines.drop(first + 1).index { |line| !line.strip.empty? && indent[line] <= indent[lines[first]] }
    (first + 1)..(first + 1 + size)
  end

  # The rows of a method. Here Python's program is a module, whose name is before the method's.
  def of(told, name)
    told["rows"].select { |row| row["function"]&.match?(/(\A|\.)#{Regexp.escape(name)}\z/) }
  end

  def sum(rows, figure) = rows.sum { |row| row[figure] }

  # Seconds in the rows. A thread that gets the lock then waits for the VM lock: in a row of its own,
  # in another column, or in the same row (Ruby 3.1).
  def seconds(rows) = (sum(rows, "blocked_ns") + rows.sum { |row| row["vm_lock_ns"] || 0 }) / 1e9

  it "has the waits of each method for the lock, and the line of the method that holds it" do
    told, counts = traced(["waits"], probe, onelock, "--orders", 200)
    waited = %w[ship find].to_h { |method| [method, of(told, "Desk#{dot}#{method}")] }
    waited.each do |method, rows|
      own = counts.fetch("#{method}_waited")
      expect(seconds(rows)).to be_between((own * 0.98) - 0.004, own * 1.02), "#{method}: #{counts} #{rows}"
      next unless tells_holders

      holder = rows.max_by { |row| row["blocked_ns"] }["holders"].first
      lines = lines_of(onelock, "def ship(")
      expect(holder["function"]).to match(/(\A|\.)Desk#{dot}ship\z/)
      expect(holder["file"]).to end_with(onelock)
      expect(lines).to include(holder["line"])
      line = [lines.to_a[language.fetch(:line)], language.fetch(:line_is)]
      expect(holder.values_at("line", "line_is")).to eq(line) unless by_process
    end
    # `find` holds the lock for microseconds.
    if tells_holders
      by_ship = waited["find"].sum { |row| row["holders"].first.to_h.fetch("blocked_ns", 0) }
      expect(by_ship).to be > 0.9 * sum(waited["find"], "blocked_ns")
    end

    # A thread that is woken waits once more if another one has taken the lock without a wait. In
    # Ruby 3.1 it also takes locks of Ruby's own, which the kernel does not tell apart.
    own = counts.fetch("ship_waits") + counts.fetch("find_waits")
    figures = language.fetch(:locks_apart) ? %w[orders finds] : %w[switches]
    most = counts.fetch_values(*figures).sum
    waits = sum(waited.values.flatten.reject { |row| row["what"] == "GIL" }, "waits")
    expect(waits).to be_between(own, most), "#{counts} #{waited}"
  end

  it "has almost no waits of these methods with the fix, and more orders in the same time" do
    told, counts = traced(["waits"], probe, onelock, "--orders", 200, "--fixed")
    asked = seconds(of(told, "Carrier#{dot}number"))
    expect(asked).to be > 200 * 0.005
    own = %w[FixedDesk ship Desk find].each_slice(2).flat_map { |names| of(told, names.join(dot)) }
    expect(seconds(own)).to be < asked * 0.05
    # One at a time would take longer.
    expect(counts.fetch("wall")).to be < asked
  end

  it "has each mkdir, with its error and its caller" do
    told, counts = traced(%w[syscalls --failed], "function__here", mkdir, "--records", 500)
    expect(counts.values_at("mkdirs", "existed")).to eq([1000, 1000 - (2 * 16)])
    rows = of(told, "Archive#{dot}make")
    expect(rows.map { |row| row["call"] }).to match([/\Amkdir(at)?\z/])
    expect(rows.first.values_at("calls", "errors")).to eq([1000, { "EEXIST" => 968 }])
    expect(rows.first["line"]).to eq(lines_of(mkdir, "def make(").first)
    expect(rows.first["file"]).to end_with(mkdir)
  end

  it "has each mkdir once with the fix, without an error" do
    told, counts = traced(["syscalls"], "function__here", mkdir, "--records", 500, "--fixed")
    expect(counts.values_at("records", "mkdirs", "existed")).to eq([500, 32, 0])
    rows = of(told, "Archive#{dot}make").select { |row| row["call"].start_with?("mkdir") }
    expect(rows.map { |row| row.values_at("calls", "errors") }).to eq([[32, {}]])
  end
end

RSpec.describe "The story of waits", :bpf do
  # line: of the method that holds the lock, which is known where the kernel tells of waits. For Ruby
  # it is that of the definition, and a Mutex is not told apart from the VM lock.
  describe "in Ruby" do
    it_behaves_like "the story of waits", suffix: ".rb", dot: "#", line: 0, line_is: "definition",
                                          locks_apart: RUBY_VERSION.between?("3.2", "3.4.99")

    it "is told by examples/story.rb", full: "takes a minute" do
      story = keep(Support::Child.new(RbConfig.ruby, File.join(Support::ROOT, "examples/story.rb"), "waits",
                                      env: Support.plain_env))
      expect(story.wait(within: 300)).to be_success, story.err
      said = story.out.scan(/^Desk#ship waits .*$/)
      expect(said.size).to eq(1), story.out
      unless RUBY_VERSION.start_with?("3.2.")
        expect(said.first).to match(/ ended by Desk#ship at \S+onelock\.rb:\d+/)
        expect(story.out).to match(%r{^/\S+onelock\.rb:\d+:  \S})
      end
      expect(story.out).to match(/^Archive#make calls mkdir(at)?, and it fails: [\d,]+ EEXIST\.$/)
      expect(story.out).to match(/mkdir\.rb:\d+:  def make\(parent, name\)$/)
      expect(story.out).to include("No call that makes a folder fails.")
      gains = story.out.scan(/^(\w[\w, ]*?) +([\d.]+) +([\d.]+)$/)
                   .to_h { |name, *both| [name, both.map(&:to_f)] }
      expect(gains["calls of mkdir for each record"]).to eq([2.0, 0.0])
      before, fixed = gains.fetch("orders a second")
      expect(fixed).to be > before
    end
  end

  describe "in Python", :python do
    it_behaves_like "the story of waits", suffix: ".py", dot: ".", line: 2, line_is: "current",
                                          locks_apart: true
  end
end
