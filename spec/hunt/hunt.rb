# frozen_string_literal: true

# Looks for crashes: programs that do at random what a VM can do (program.rb, program.py), while the
# C attacher raises and lowers every probe at random.
#
#   ruby spec/hunt/hunt.rb ruby|python SECONDS [SEED]      RUBY=, PYTHON=, JOBS=2, WITHOUT=doing,doing, PROGRAM_SECONDS=8, MOST_CASES=
#
# Each program has a seed of its own, SEED, SEED+1 and so on. What crashes, hangs or ends otherwise
# than the program means to is a case. Its output is kept in $HUNT_CASES (tmp/hunt). The same
# program then runs again without the library, HUNT_ALONE=3 times. When it fails there in the same
# way, the fault is the VM's: the hunt says so, and its exit status is 0. The library may do harm
# without a tracer as well, so a run with the library and without a tracer only says more of the
# case. Where more than half of the programs fail without the library, something is wrong with what
# runs them, and the hunt fails.
require "fileutils"
require "open3"
require "rbconfig"
%w[paths await elf info child python target bpf tracer attacher].each { |name| require_relative "../support/#{name}" }
require_relative "../../lib/probescope/abi"

class Hunt
  include Support::Await

  PROBES = Probescope::ABI::PROBES.keys.map(&:to_s).freeze
  # A program that is still there so many seconds after its end hangs, unless it uses the CPU or
  # waits for one: a machine can be busy, and GC.stress slow.
  PATIENCE = Integer(ENV.fetch("HUNT_PATIENCE", "90"))
  # CPU seconds, after which it hangs all the same.
  MOST_CPU = Integer(ENV.fetch("HUNT_CPU", "300"))
  ALONE = Integer(ENV.fetch("HUNT_ALONE", "3"))
  FATAL = /\[BUG\]|AddressSanitizer|runtime error:|Fatal Python error|HUNT: |probescope: /
  # The exception that a VM ended with: Ruby's has its class at the end of the line, Python's at its
  # start.
  EXCEPTION = /^\S+:\d+:in .*\((?:fatal|[A-Z][\w:]*)\)$|^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Exit)\b.*$/

  # In /proc/PID/syscall: a wait for a mutex of libasan's allocator. They are the first bytes behind
  # its heap, where no other memory is. GCC 12 leaves such a mutex taken in a child that is forked
  # while another thread has it.
  SANITIZERS_LOCK = /\A202 0x64000000\h{4} /
  IN_SANITIZER = "a forked child waits for a lock of the sanitizer's own"

  Outcome = Struct.new(:good, :how, :text, keyword_init: true) do
    # Without what differs from run to run: places, addresses, process ids and seeds.
    def kind = how[/(?:#{FATAL}).*/o].to_s.then { |fatal| fatal.empty? ? how : fatal }.gsub(/0x\h+|[\d.]{3,}/, "N")[0, 100]
  end

  def initialize(language, seconds, seed)
    @language = language
    @next = seed
    @began = monotonic
    @ends = @began + seconds
    @each = Float(ENV.fetch("PROGRAM_SECONDS", "8"))
    @cases = ENV.fetch("HUNT_CASES", File.join(Support::ROOT, "tmp/hunt"))
    @most = Integer(ENV.fetch("MOST_CASES", "20"))
    @lock = Thread::Mutex.new
    @found = []
    @ran = 0
    Support::Attacher.binary
  end

  # Whether it has hunted, and has found nothing that may be ours. It ends early with MOST_CASES.
  def run
    puts "hunt: #{name}, from seed #{@next}"
    Array.new(Integer(ENV.fetch("JOBS", "2"))) { Thread.new { hunt while monotonic < @ends && @found.size < @most } }.each(&:join)
    seconds = (monotonic - @began).round
    # Only now: a tracer that attaches by path reaches the processes of the other job.
    ours, others = @found.map { |seed, outcome| keep(seed, outcome) }.partition { |one| one.end_with?(".txt") }
    puts("hunt: #{name}: #{@ran} programs in #{seconds} s, #{ours.size} cases, #{others.size} of the VM's own",
         ours.map { |one| "FAILED: #{one}" }, others.map { |one| "hunt: #{one}" })
    hunted = others.size <= @ran / 2
    puts "FAILED: #{name}: most programs fail without the library, so nothing can be found" unless hunted
    ours.empty? && hunted
  end

  private

  def name
    @name ||=
      if @language == "ruby"
        `#{ruby} -v`.split(" ").grep(/\A(ruby|\d.*\.\d.*|\+YJIT)\z/).join(" ")
      else
        `#{Support::Python.interpreter} -V`.chomp
      end
  end

  def ruby = ENV.fetch("RUBY", RbConfig.ruby)

  def hunt
    seed = @lock.synchronize { (@next += 1) - 1 }
    outcome = try(seed)
    @lock.synchronize do
      @ran += 1
      next if outcome.good

      @found << [seed, outcome]
      warn "hunt: #{name}, seed #{seed}, after #{(monotonic - @began).round} s: #{outcome.how[0, 200]}"
    end
  end

  # What the seed decides beside the program.
  def try(seed, traced: true, loaded: true)
    dice = Random.new(seed)
    by_path = dice.rand(3).zero?
    target = start(seed, dice, loaded)
    attacher = nil
    if traced
      patiently(target, PATIENCE) { |within| target.await_line(/\Aready$/, within: within) }
      attacher = Support::Attacher.new(target, *PROBES, random: seed, by_path: by_path, library: library)
    end
    patiently(target, @each + PATIENCE) { |within| target.wait(within: within) }
    judge(target)
  rescue Support::Await::Timeout => e
    how = target && in_sanitizer?(target) ? IN_SANITIZER : "hangs"
    state = target && hanging(target)
    Outcome.new(good: false, how: how, text: "#{e.message}\n#{state}\n#{target}")
  ensure
    end_of(attacher)
    target&.kill_all
  end

  # The kernel takes its probes out first, one after the other: more than half a minute on a busy
  # machine.
  def end_of(attacher)
    attacher&.kill_all
  rescue Support::Await::Timeout
    attacher.wait(within: 600)
  end

  # Raises Timeout when it hangs.
  def patiently(target, seconds)
    yield seconds
  rescue Support::Await::Timeout
    before = at_work(target)
    begin
      yield 20
    rescue Support::Await::Timeout
      now = at_work(target)
      raise if (before.finite? && now < before + 0.5) || target.cpu > MOST_CPU

      before = now
      retry
    end
  end

  # Seconds for which its threads, and those of what it forked, have used a CPU or have waited for
  # one. The kernel counts a wait as it ends: one that goes on at the lowest priority on a busy
  # machine can take longer than we look, so it counts as work without end.
  def at_work(target)
    tasks = group(target).flat_map { |pid| Dir["/proc/#{pid}/task/*"] }
    tasks.sum do |task|
      next Float::INFINITY if File.read("#{task}/stat").rpartition(")").last.start_with?(" R")

      File.read("#{task}/schedstat").split.first(2).sum(&:to_i) / 1e9
    rescue SystemCallError
      0
    end
  end

  def group(target)
    Dir["/proc/[0-9]*/stat"].filter_map do |path|
      head, _, rest = File.read(path).rpartition(")")
      head.to_i if rest.split[2].to_i == target.pid
    rescue SystemCallError
      nil
    end
  end

  def in_sanitizer?(target)
    (group(target) - [target.pid]).any? do |pid|
      File.read("/proc/#{pid}/syscall").match?(SANITIZERS_LOCK)
    rescue SystemCallError
      false
    end
  end

  # What it is doing, and what it forked. Both VMs say where their threads are when they get a
  # SIGSEGV.
  def hanging(target)
    state = [target.state, *group(target).map { |pid| native_stacks(pid) }].join("\n")
    Process.kill(:SEGV, -target.pid)
    target.wait(within: 20)
    state
  rescue Support::Await::Timeout, SystemCallError => e
    "#{state}\n#{e.message}"
  end

  # Of all threads, where there is a debugger.
  def native_stacks(pid)
    Open3.capture2e("timeout", "60", "gdb", "--batch", "--nx", "-p", pid.to_s, "-ex", "thread apply all backtrace 40").first
  rescue Errno::ENOENT
    "no gdb: no native stacks"
  end

  def library = @language == "ruby" ? Support::LIBRARY : Support::Python.library

  def start(seed, dice, loaded)
    arguments = [seed.to_s, @each.to_s, ENV.fetch("WITHOUT", "")]
    functions = ["all", nil].sample(random: dice)
    env = { "PROBESCOPE_FUNCTIONS" => functions }.compact.merge(ENV.to_h.slice("HUNT_SHOW", "RUBY_YJIT_ENABLE"))
    env["PROBESCOPE_FORCE"] = "1" if dice.rand(2).zero?
    env["PYTHONFAULTHANDLER"] = "1"
    env["PYTHONPATH"] = "" unless loaded # which would find the package, if the program asks for it
    program = File.join(__dir__, @language == "ruby" ? "program.rb" : "program.py")
    Support::Target.new(program, *arguments, loaded: loaded, ruby: ruby, env: env)
  end

  def judge(target)
    status = target.wait
    fatal = target.err[/^.*(?:#{FATAL}).*$/o]
    good = status.success? && target.out.match?(/^done /) && !fatal
    how = fatal || [status.to_s.sub(/\Apid \d+ /, ""), target.err[EXCEPTION]].compact.join(": ")
    Outcome.new(good: good, how: how, text: target.to_s)
  end

  # What to say of a case; the rest is in its file.
  def keep(seed, outcome)
    return "#{name}, seed #{seed}: #{IN_SANITIZER}" if outcome.how == IN_SANITIZER

    FileUtils.mkdir_p(@cases)
    alone = again(seed, outcome, ALONE, loaded: false)
    idle = again(seed, outcome, 1, loaded: true) unless alone.any? { |one| one.kind == outcome.kind }
    told = "#{name}, seed #{seed}: #{outcome.how[0, 200]} (without the library: #{ends(alone)}"
    told << (idle ? "; without a tracer: #{ends(idle)})" : ")")
    file = "#{@cases}/#{name.tr(" ", "-")}-#{seed}.txt"
    File.write(file, [told, outcome.text, *[*alone, *idle].reject(&:good).map(&:text)].join("\n"))
    interpreter = @language == "ruby" ? ruby : Support::Python.interpreter
    interpreter, file = [interpreter, file].map { |path| path.delete_prefix("#{Support::ROOT}/") }
    idle ? "#{told}: rake hunt #{@language.upcase}=#{interpreter} SEED=#{seed}: #{file}" : "#{told} (#{file})"
  end

  # The same program without a tracer, until it fails in the same way.
  def again(seed, outcome, times, loaded:)
    Array.new(times).each_with_object([]) do |_, outcomes|
      outcomes << try(seed, traced: false, loaded: loaded)
      break outcomes if outcomes.last.kind == outcome.kind
    end
  end

  def ends(outcomes)
    return "not tried" if outcomes.empty?

    outcomes.map { |one| one.good ? "ends well" : one.how[0, 100] }.tally.map { |how, times| "#{times} x #{how}" }.join(", ")
  end

  def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

if $PROGRAM_NAME == __FILE__
  language, seconds, seed = ARGV
  exit Hunt.new(language, Integer(seconds), Integer(seed || Random.new_seed % 1_000_000)).run
end
