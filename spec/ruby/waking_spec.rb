# frozen_string_literal: true

require "socket"
require_relative "../spec_helper"
require_relative "support/tracing"

# Programs for the examples.
module Waiting
  # Threads that call a worker for each job of a queue, and print the time of each call, in ns of
  # CLOCK_MONOTONIC like bpftrace's.
  WORKERS = <<~RUBY
    $stdout.sync = true
    class Worker
      def request = now.tap { |time| $stdout.write("call \#{time}\\n") }
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    end
    def serve(threads, period)
      queue = Queue.new
      Array.new(threads) { Thread.new { Worker.new.request while queue.pop } }
      Thread.new { loop { sleep period; queue << true } }
      puts "ready"
      Thread.new { sleep }.join
    end
  RUBY

  # The previous action of each signal that may be trapped.
  TRAPS = "Signal.list.values.reject { |n| [0, 4, 8, 9, 7, 11, 19, 26].include?(n) }" \
          ".map { |n| trap(n, 'DEFAULT') }"
end

# The threads of the Ruby all wait, or run for a moment now and then, like those of a server.
RSpec.describe "an attach to a Ruby that waits", :bpf do
  # Ways for the main thread to wait while other threads work, or none does.
  {
    "sleep" => "sleep",
    "ConditionVariable#wait" => "Thread.new { sleep }; lock.synchronize { ConditionVariable.new.wait(lock) }",
    "Thread#join" => "Thread.new { sleep }.join",
    "Queue#pop" => "Thread.new { sleep }; Queue.new.pop",
    "IO.select" => "IO.select([pipe])",
    "IO#read" => "pipe.read(1)",
    "TCPServer#accept" => "TCPServer.new('127.0.0.1', 0).accept",
    "Process.wait" => "Process.wait(spawn('sleep', '600'))"
  }.each do |name, wait|
    it "puts the hooks in while the main thread is in #{name}, and does not end that wait" do
      target, = program(<<~RUBY)
        require "socket"
        $stdout.sync = true
        pipe, = KEEP = IO.pipe
        lock = Mutex.new
        puts "ready"
        #{wait}
        puts "it returned"
        sleep
      RUBY
      target.ready
      sleeping(target)
      # Each probe needs its own hooks: those of the last probe stay in while Ruby waits.
      %w[exception__stats object__stats gc__done].each do |probe|
        attacher(target, probe).tap(&:attached).finish
      end
      expect(target.out).not_to include("returned")
      expect(target.err).to be_empty
    end
  end

  it "counts every call of eight threads that serve a queue, a job every 0.7 s" do
    run = workers("serve(8, 0.7)")
    count_every_call(run)
  end

  it "counts every call of a server of five threads with a request a second" do
    run = workers("serve(5, 1.0)")
    count_every_call(run)
  end

  it "does not disturb traps, or waits with a timeout in the main thread" do
    target, = program(<<~RUBY)
      require "json"
      $stdout.sync = true
      lock = Mutex.new
      waited = {}
      now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
      puts "ready"
      Thread.new { sleep 30; exit!(3) }
      began = now.call
      lock.synchronize { lock.sleep(3) }
      waited[:mutex] = now.call - began
      began = now.call
      lock.synchronize { ConditionVariable.new.wait(lock, 3) }
      waited[:condition] = now.call - began
      puts "report \#{JSON.generate(waited: waited, traps: #{Waiting::TRAPS})}"
      sleep
    RUBY
    target.ready
    until (report = target.out[/^report (.*)/, 1])
      sleeping(target)
      %w[exception__stats object__stats gc__done].each do |probe|
        attacher(target, probe).tap(&:attached).finish
      end
    end
    report = JSON.parse(report, symbolize_names: true)
    expect(report[:waited].values).to all(be >= 3)
    command = [RbConfig.ruby, "-rjson", "-e", "print JSON.generate(#{Waiting::TRAPS})"]
    expect(report[:traps]).to eq(JSON.parse(IO.popen(command, &:read)))
    expect { Signal.trap("VTALRM") {} }.to raise_error(ArgumentError, /reserved signal/)
  end

  it "puts the hooks in in a forked worker whose main thread waits, like in its parent" do
    target, = program(<<~RUBY)
      $stdout.sync = true
      Thread.new { sleep }
      Thread.new { puts "child \#{fork { Thread.new { sleep }.join }}" }.join
      Thread.new { sleep }.join
    RUBY
    child = Integer(target.await_line(/^child (\d+)/)[1])
    [target.pid, child].each do |pid|
      info = target.info(pid)
      await("a main thread that waits") { File.read("/proc/#{pid}/task/#{pid}/syscall").match?(/\A\d/) }
      listener = Struct.new(:pid, :info).new(pid, info)
      attacher(listener, "exception__stats").tap(&:attached).finish
    end
  end

  # In the first case, Ruby would raise Errno::EINTR. In the second, a client of a database may
  # cancel its query.
  {
    "opens a FIFO" => ["File.open(ARGV[0], &:read)", /\A(257|56) /],
    "reads from a connection" => ["UNIXSocket.open(ARGV[0] + '.socket', &:read)", /\A(0|7|63|73) /]
  }.each do |what, (wait, call)|
    it "does not interrupt a main thread that #{what}" do
      directory = Dir.mktmpdir("probescope")
      (@directories ||= []) << directory
      fifo = File.join(directory, "fifo")
      File.mkfifo(fifo)
      server = UNIXServer.new("#{fifo}.socket")
      target, = program(<<~RUBY, args: [fifo])
        require "socket"
        $stdout.sync = true
        puts "ready"
        puts "read \#{#{wait}}"
        sleep
      RUBY
      target.ready
      sleeping(target, call)
      attached = attacher(target, "exception__stats", wait: false).tap { |one| one.await_line(/attached/) }
      await("the request of the watcher") { target.info.header[:asked_ns].positive? }
      looks = target.info.header[:watcher_ticks]
      await("a second of looks") { target.info.header[:watcher_ticks] > looks + 40 }
      expect(target.info.header[:hooks_in_ns]).to eq(0)
      what.include?("FIFO") ? File.write(fifo, "whole") : server.accept.tap { |one| one.write("whole") }.close
      target.await_line(/^read whole$/)
      await("the hooks") { target.info.header[:hooks_in_ns].positive? }
      attached.finish
      expect(target.err).to be_empty
    end
  end

  # Waits until the main thread is in a system call.
  def sleeping(target, call = /\A\d/)
    await("the main thread in a system call") do
      File.read("/proc/#{target.pid}/task/#{target.pid}/syscall").match?(call)
    end
  end

  # Runs the program for five flushes after the first one.
  def workers(call)
    target, = program(Waiting::WORKERS + call)
    target.ready
    target.await_line(/^call/)
    # bpftrace attaches the last probe first.
    text = <<~BPFTRACE
      usdt:*:probescope:stats__done { printf("done\\t%llu\\t%llu\\n", nsecs, *(uint64*)arg5); }
      usdt:*:probescope:function__stats { printf("row\\t%s\\t%llu\\n", str(arg0, 64), arg3); }
    BPFTRACE
    seen = tracer(text, pid: target.pid)
    await("flushes of #{target}", within: 30) { seen.out.scan(/^done/).size >= 6 }
    [target, seen.finish]
  end

  # Compares the rows between the first flush and the last with the program's calls. A call in the
  # moment of a flush may be on either side.
  def count_every_call((target, out))
    flushes = out.scan(/^done\t(\d+)/).flatten.map(&:to_i)
    _, *intervals = out.split(/^done.*\n/)
    counted = intervals.first(flushes.size - 1).sum do |rows|
      rows.scan(/^row\tWorker#request\t(\d+)/).flatten.sum(&:to_i)
    end
    calls = target.out.scan(/^call (\d+)/).flatten.map(&:to_i)
    near = ->(time) { flushes.values_at(0, -1).any? { |flush| (flush - time).abs < 50_000_000 } }
    sure, unsure = calls.partition { |time| time.between?(flushes.first, flushes.last) && !near[time] }
    expect(counted).to be_between(sure.size, sure.size + unsure.count(&near))
    expect(sure.size).to be >= 3
  end
end
