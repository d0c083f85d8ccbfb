# frozen_string_literal: true

require "socket"
require "tempfile"
require "timeout"

# Runs each way to wait for some rounds: {name => [did it end too soon, its results]}. Between two
# waits there is work, in which a timer on this thread's clock runs out, or nearly so.
module Blocking
  TIME = 0.03
  FILE = Tempfile.new("blocking")
  READER, WRITER = IO.pipe
  SERVER = TCPServer.new("127.0.0.1", 0)
  MUTEX = Thread::Mutex.new
  CONDITION = Thread::ConditionVariable.new

  module_function

  def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def work(seconds = 0.008)
    ends = cpu + seconds
    1_000.times { nil } while cpu < ends
  end

  # Holds the lock so that another thread waits for it for TIME at least.
  def hold
    holder = Thread.new { MUTEX.synchronize { sleep TIME * 2 } }
    Thread.pass until MUTEX.locked?
    sleep TIME / 4
    MUTEX.synchronize { holder.join.value }
  end

  def lock_file
    holder = spawn("flock", FILE.path, "sleep", (TIME * 3).to_s)
    sleep 0.001 while FILE.flock(File::LOCK_EX | File::LOCK_NB) && FILE.flock(File::LOCK_UN)
    FILE.flock(File::LOCK_EX)
    [FILE.flock(File::LOCK_UN), ended(holder)]
  end

  def ended(pid) = Process.wait2(pid).last.exitstatus

  WAYS = {
    sleep: -> { sleep(TIME) && :woken },
    select: -> { IO.select([READER], nil, nil, TIME) },
    accept: -> { Timeout.timeout(TIME) { SERVER.accept } },
    pop: -> { Timeout.timeout(TIME) { Thread::Queue.new.pop } },
    condition: -> { MUTEX.synchronize { CONDITION.wait(MUTEX, TIME) } && :woken },
    mutex: -> { hold && :free },
    join: -> { Thread.new { sleep TIME }.join && :ended },
    spawn: -> { ended(spawn("sleep", TIME.to_s)) },
    fork: -> { ended(fork { [work, sleep(TIME), exit!(3)] }) },
    exec: -> { ended(fork { [work, exec("sleep", TIME.to_s)] }) },
    system: -> { [system("sleep #{TIME}; exit 4"), Process.last_status.exitstatus] },
    backticks: -> { `sleep #{TIME}; echo said` },
    popen: -> { IO.popen("sleep #{TIME}; echo said", &:read) },
    flock: -> { lock_file }
  }.freeze

  def once(way)
    began = now
    result = begin
      way.call
    rescue Timeout::Error
      :late
    end
    soon = now - began < TIME - 0.001
    work
    [soon, result]
  end

  def all(rounds) = WAYS.transform_values { |way| Array.new(rounds) { once(way) }.uniq }
end
