# frozen_string_literal: true

# Looks for crashes: programs that do at random what a VM can do (program.rb, program.py), while the C attacher raises and lowers
# every probe at random.
#
#   ruby spec/hunt/hunt.rb ruby|python SECONDS [SEED]      RUBY=, PYTHON=, JOBS=2, WITHOUT=doing,doing, PROGRAM_SECONDS=8
#
# Each program has a seed of its own, SEED, SEED+1 and so on. What crashes, hangs or ends otherwise than the program means to is a case: its
# output is kept in $HUNT_CASES (tmp/hunt), and the same program runs again without a tracer. When that fails as well, the fault is the
# VM's: the hunt says so, and its exit status is 0.
require "fileutils"
require "open3"
require "rbconfig"
%w[paths await elf info child python target bpf tracer attacher].each { |name| require_relative "../support/#{name}" }
require_relative "../../lib/probescope/abi"

class Hunt
  include Support::Await

  PROBES = Probescope::ABI::PROBES.keys.map(&:to_s).freeze
  # A program that is still there so many seconds after its end hangs, unless it uses the CPU: a machine can be busy, and GC.stress slow.
  PATIENCE = Integer(ENV.fetch("HUNT_PATIENCE", "90"))
  # CPU seconds, after which it hangs all the same.
  MOST_CPU = Integer(ENV.fetch("HUNT_CPU", "300"))
  Outcome = Struct.new(:good, :how, :text, keyword_init: true)

  def initialize(language, seconds, seed)
    @language = language
    @seconds = seconds
    @next = seed
    @ends = monotonic + seconds
    @each = Float(ENV.fetch("PROGRAM_SECONDS", "8"))
    @cases = ENV.fetch("HUNT_CASES", File.join(Support::ROOT, "tmp/hunt"))
    @lock = Thread::Mutex.new
    @found = []
    @ran = 0
    Support::Attacher.binary
  end

  # The number of cases that may be ours.
  def run
    puts "hunt: #{name}, from seed #{@next}"
    Array.new(Integer(ENV.fetch("JOBS", "2"))) { Thread.new { hunt while monotonic < @ends } }.each(&:join)
    # Only now: a tracer that attaches by path reaches the processes of the other job.
    ours, others = @found.map { |seed, outcome| keep(seed, outcome) }.partition { |one| one.end_with?(".txt") }
    puts("hunt: #{name}: #{@ran} programs in #{@seconds} s, #{ours.size} cases, #{others.size} of the VM's own",
         ours.map { |one| "FAILED: #{one}" }, others.map { |one| "hunt: #{one}" })
    ours.size
  end

  private

  def name
    @name ||= @language == "ruby" ? `#{ruby} -v`.split(" ").grep(/\A(ruby|\d.*\.\d.*|\+YJIT)\z/).join(" ") : `#{Support::Python.interpreter} -V`.chomp
  end

  def ruby = ENV.fetch("RUBY", RbConfig.ruby)

  def hunt
    seed = @lock.synchronize { (@next += 1) - 1 }
    outcome = try(seed)
    @lock.synchronize do
      @ran += 1
      next if outcome.good

      @found << [seed, outcome]
      warn "hunt: #{name}, seed #{seed}: #{outcome.how[0, 200]}"
    end
  end

  # What the seed decides beside the program.
  def try(seed, traced: true)
    dice = Random.new(seed)
    by_path = dice.rand(3).zero?
    target = start(seed, dice)
    attacher = nil
    if traced
      target.ready
      attacher = Support::Attacher.new(target, *PROBES, random: seed, by_path: by_path, library: library)
    end
    wait_for(target)
    judge(target)
  rescue Support::Await::Timeout => e
    state = target && [target.state, native_stacks(target.pid)].join("\n")
    target&.signal(:SEGV) # both VMs say then where their threads are
    target&.wait(within: 20)
    Outcome.new(good: false, how: "hangs", text: "#{e.message}\n#{state}\n#{target}")
  ensure
    end_of(attacher)
    target&.kill_all
  end

  # The kernel takes its probes out first, one after the other: more than half a minute on a busy machine.
  def end_of(attacher)
    attacher&.kill_all
  rescue Support::Await::Timeout
    attacher.wait(within: 600)
  end

  # Raises Timeout when it hangs.
  def wait_for(target)
    target.wait(within: @each + PATIENCE)
  rescue Support::Await::Timeout
    before = target.cpu
    begin
      target.wait(within: 20)
    rescue Support::Await::Timeout
      now = target.cpu
      raise if now < before + 0.5 || now > MOST_CPU

      before = now
      retry
    end
  end

  # Of all threads, where there is a debugger.
  def native_stacks(pid)
    Open3.capture2e("gdb", "--batch", "--nx", "-p", pid.to_s, "-ex", "thread apply all backtrace 40").first
  rescue Errno::ENOENT
    "no gdb: no native stacks"
  end

  def library = @language == "ruby" ? Support::LIBRARY : Support::Python.library

  def start(seed, dice)
    arguments = [seed.to_s, @each.to_s, ENV.fetch("WITHOUT", "")]
    functions = ["all", nil].sample(random: dice)
    env = { "PROBESCOPE_FUNCTIONS" => functions }.compact.merge(ENV.to_h.slice("HUNT_SHOW", "RUBY_YJIT_ENABLE"))
    env["PROBESCOPE_FORCE"] = "1" if dice.rand(2).zero?
    env["PYTHONFAULTHANDLER"] = "1"
    program = File.join(__dir__, @language == "ruby" ? "program.rb" : "program.py")
    Support::Target.new(program, *arguments, ruby: ruby, env: env)
  end

  def judge(target)
    status = target.wait
    fatal = target.err[/^.*(?:\[BUG\]|AddressSanitizer|runtime error:|Fatal Python error|HUNT: |probescope: ).*$/]
    good = status.success? && target.out.match?(/^done /) && !fatal
    Outcome.new(good: good, how: fatal || status.to_s.sub(/\Apid \d+ /, ""), text: target.to_s)
  end

  # What to say of a case; the rest is in its file.
  def keep(seed, outcome)
    FileUtils.mkdir_p(@cases)
    alone = try(seed, traced: false)
    told = "#{name}, seed #{seed}: #{outcome.how[0, 200]} (without a tracer: #{alone.good ? "ends well" : alone.how[0, 100]})"
    file = "#{@cases}/#{name.tr(" ", "-")}-#{seed}.txt"
    File.write(file, "#{told}\n#{outcome.text}\n#{alone.good ? "" : "Without a tracer:\n#{alone.text}\n"}")
    alone.good ? "#{told}: rake hunt #{@language.upcase}=#{@language == "ruby" ? ruby : Support::Python.interpreter} SEED=#{seed}: #{file}" : "#{told} (#{file})"
  end

  def monotonic = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

if $PROGRAM_NAME == __FILE__
  language, seconds, seed = ARGV
  exit Hunt.new(language, Integer(seconds), Integer(seed || Random.new_seed % 1_000_000)).run.zero?
end
