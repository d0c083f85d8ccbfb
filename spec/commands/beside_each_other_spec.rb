# frozen_string_literal: true

require "spec_helper"

# Tracers attach to a process and leave it while other commands trace it. Those commands lose
# nothing, and the application's own hooks stay.
RSpec.describe "Commands beside each other", :bpf do
  # The commands that attach and leave.
  others = [["calls", "--all"], ["lines"], ["hot", "--by-request"], ["exceptions"], ["backtraces"],
            ["alloc", "--by-request"], ["slow"], ["flow", "--json"], ["gc"], ["stat", "--light"]]
  # Each program works from one USR1 to the next. Then it prints how often it worked.
  programs = {
    "Ruby" => <<~RUBY,
      class Worker
        def call = Object.new
        define_method(:defined) { nil }

        def fail
          raise KeyError, "known"
        rescue KeyError
          nil
        end
      end

      $stdout.sync = true
      classes = 0
      TracePoint.new(:class) { classes += 1 }.enable
      worker = Worker.new
      done = 0
      trap("USR1") { $work = !$work }
      puts "ready"
      loop do
        sleep 0.002 until $work
        while $work
          100.times { worker.call }
          100.times { worker.fail }
          worker.defined
          done += 100
          sleep 0.002
        end
        eval("class Late; end")
        puts "worked \#{done} \#{classes}"
      end
    RUBY
    "Python" => <<~PYTHON
      import signal, time

      class Thing:
          pass

      class Worker:
          def call(self):
              return Thing()

          def fail(self):
              try:
                  raise KeyError("known")
              except KeyError:
                  pass

      working = False

      def turn(*_):
          global working
          working = not working

      signal.signal(signal.SIGUSR1, turn)
      worker, done = Worker(), 0
      print("ready", flush=True)
      while True:
          while not working:
              time.sleep(0.002)
          while working:
              for _ in range(100):
                  worker.call()
                  worker.fail()
              done += 100
              time.sleep(0.002)
          print("worked", done, 1, flush=True)
    PYTHON
  }

  def rows(command) = JSON.parse(command.out).fetch("rows")

  def intervals(process, count = 2)
    before = process.info.header[:flushes]
    await("#{count} flushes") { process.info.header[:flushes] >= before + count }
  end

  # Returns what the process did while the others attached and left.
  def work(process, others)
    process.signal(:USR1)
    intervals(process)
    others.each do |command, *options|
      other = probescope(command, "-p", process.pid, *options, "-d", 1)
      expect(other.status).to be_success, other.err
      intervals(process)
    end
    process.signal(:USR1)
    process.await_line(/\Aworked (\d+) (\d+)$/)[1..].map(&:to_i).tap { intervals(process) }
  end

  programs.each do |language, program|
    it "count all that a #{language} process does while others attach and leave",
       full: "attaches for minutes beside other tests" do
      process = Dir.mktmpdir do |folder|
        path = File.join(folder, "worker.#{language == "Ruby" ? "rb" : "py"}")
        File.write(path, program)
        target(path).ready
      end
      commands = %w[calls alloc exceptions].to_h do |name|
        [name, probescope_start(name, "-p", process.pid, "-d", 600, "--json")]
      end
      process.await_on("function__stats", "object__stats", "exception__stats")
      intervals(process)
      done, classes = work(process, others)
      expect(classes).to eq(1), "a TracePoint of the application is deaf"
      commands.each_value { |command| expect(command.stop(:INT, within: 60)).to be_success, command.err }
      calls = rows(commands["calls"]).to_h { |row| [row["function"][/\w+\z/], row["calls"]] }
      expect(calls).to include("call" => done, "fail" => done)
      exceptions = JSON.parse(commands["exceptions"].out)
      expect(exceptions["rows"].find { |row| row["type"] == "KeyError" }).to include("count" => done)
      unseen = /\Anot in it: what was raised in Python 3\.1\d.* and (no Python|C) code/
      missed = language == "Ruby" ? [] : [match(unseen)]
      expect(exceptions["not_covered"]).to match(missed)
      expect(rows(commands["alloc"]).map { |row| row["count"] }).to include(done)
    end
  end
end
