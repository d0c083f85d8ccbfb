# frozen_string_literal: true

# A program that enters and leaves methods at random, in every way that Ruby has. It records how
# often each method was left, how often by an exception, and (KEEP=1) each entry and return in
# order. The methods write this record themselves, by the rules of the language, without a
# TracePoint.
#
#   ruby -rprobescope/auto -r./spec/ruby/support/gate.rb spec/ruby/support/random_program.rb \
#     SEED CALLS [PROBE...]
#
# It waits for its tracer in the middle of ten calls, whose returns have no entries. The report is
# {"calls": {"Mix#leaf" => [left, by an exception]}, "events": [[[function, depth] or [function,
# depth, outcome], ...] for each context]}.
require "json"
require "timeout"
# rubocop:disable Lint/EnsureReturn, Style/ExplicitBlockArgument, Style/Lambda
# rubocop:disable Style/RedundantReturn, Style/Semicolon

# Function probes ignore the path of these methods, as they ignore the gate's.
eval <<~'RUBY', TOPLEVEL_BINDING, "<record>", 1
  # frozen_string_literal: true

  Oops = Class.new(StandardError)
  Told = Class.new(Exception)

  # The record of one context (thread or fiber). A thread's contexts share dice and budget.
  class Record
    RETURNED = 0
    RAISED = 1
    EVENTS = []
    COUNTS = []
    KEEP = ENV["KEEP"] == "1"

    attr_accessor :leaving # outcome of the methods that are being left; nil: none is
    attr_reader :dice, :budget, :counts

    def initialize(dice, budget, counts = nil, fiber: false)
      @dice, @budget, @fiber = dice, budget, fiber
      @counts = counts || Hash.new { |hash, name| hash[name] = [0, 0] }.tap { |hash| COUNTS << hash }
      @open = []
      @catchers = []
      EVENTS << (@events = []) if KEEP
    end

    def fiber? = @fiber
    def level = @open.size
    def value = @dice.rand(2).zero? ? nil : :some
    def chance(one_in) = @dice.rand(one_in).zero?
    def catcher = @catchers << @open.size
    def caught? = !@catchers.empty?
    def another(fiber: false) = Record.new(@dice, @budget, @counts, fiber: fiber)

    def enter(name)
      @budget[0] -= 1
      @events << [name, @open.size] if KEEP
      @open << name
    end

    # The method that was entered last returns this value.
    def leave(value = nil)
      left(RETURNED)
      value
    end

    # Records the exits of methods until this many are open.
    def unwind(level, outcome = @leaving)
      left(outcome) while @open.size > level
      @leaving = nil
    end

    # Runs in an ensure clause, whose method is being left if @leaving is set.
    def tidying(level)
      outcome = @leaving
      unwind(level, outcome) if outcome
      yield
      outcome ? @leaving = outcome : leave
    end

    # Adds calls that were only counted.
    def add(name, times, outcome)
      @counts[name][0] += times
      @counts[name][1] += times if outcome == RAISED
    end

    # A fiber with its own record. An exception that leaves the fiber continues in its resumer.
    def fiber
      theirs = another(fiber: true)
      Fiber.new do
        yield theirs
      rescue Oops
        theirs.unwind(0)
        @leaving = RAISED
        raise
      end
    end

    # A thread that waits in the middle of its calls until the program ends it.
    def thread(leaving)
      ready = Queue.new
      theirs = another
      thread = Thread.new do
        Thread.current.report_on_exception = false
        yield theirs, -> { theirs.leaving = leaving; ready << 1; sleep }
      ensure
        theirs.unwind(0, leaving)
      end
      ready.pop
      thread
    end

    # Interrupts the waiting block. The interrupt arrives only while the block waits.
    def timeout(&waits)
      Thread.handle_interrupt(Told => :never) do
        Timeout.timeout(0.001, Told) do
          yield -> { @leaving = RAISED; Thread.handle_interrupt(Told => :immediate) { sleep } }
        end
      end
    end

    def self.report(keep)
      calls = COUNTS.each_with_object({}) do |counts, sum|
        counts.each do |name, (left, raised)|
          row = (sum[name] ||= [0, 0])
          row[0] += left
          row[1] += raised
        end
      end
      { calls: calls.reject { |_, (left, _)| left.zero? }, events: keep ? EVENTS.reject(&:empty?) : [] }
    end

    private

    def left(outcome)
      name = @open.pop
      @catchers.pop while @catchers.any? && @catchers.last > @open.size
      @events << [name, @open.size, outcome] if KEEP
      @counts[name][0] += 1
      @counts[name][1] += 1 if outcome == RAISED
    end
  end

  # The minimum that Fiber.schedule needs.
  class Scheduler
    def initialize = (@ready, @blocked = [], {})
    def fiber(&block) = Fiber.new(blocking: false, &block).tap(&:resume)
    def kernel_sleep(*) = (@ready << Fiber.current) && Fiber.yield
    def block(_blocker, _timeout = nil) = (@blocked[Fiber.current] = true) && Fiber.yield
    def unblock(_blocker, fiber) = @blocked.delete(fiber) && @ready << fiber
    def io_wait(_io, events, _timeout) = events
    def fiber_interrupt(*) = nil
    def run = (@ready.shift.resume until @ready.empty?)
    def close = run
  end
RUBY

module Loud
  refine Symbol do
    def refined(mix, r, depth)
      r.enter("Symbol#refined")
      mix.step(r, depth)
      r.leave(r.value)
    end
  end
end
using Loud

module Prepended
  def super_called(r, depth)
    r.enter("Prepended#super_called")
    super
    r.leave(r.value)
  end
end

# Each method first records its entry, and last its return.
class Mix
  prepend Prepended

  OPS = %i[leaf leaf leaf pairs blocks rescues rescues_by_modifier rescues_around ensures
           ensures_returning raises raises_deep passes raises_again retries catches throws breaks nexts
           returns returns_through_proc lambdas redoes symbols maps missing defined defined_returning
           other super_called refined singleton instances fibers fibers_left pauses enumerates
           enumerates_half loops lets_c_rescue stops early sends yields_tidily].freeze
  RARE = %i[changes endless kills told times_out schedules transfers].freeze

  def step(r, depth)
    r.enter("Mix#step")
    level = r.level
    run(r, depth + 1) if depth < 30 && r.budget[0].positive?
    r.unwind(level) if r.leaving
    r.leave(r.value)
  end

  def run(r, depth)
    r.enter("Mix#run")
    level = r.level
    name = r.chance(400) ? RARE.sample(random: r.dice) : OPS.sample(random: r.dice)
    name == :refined ? :a.refined(self, r, depth) : public_send(name, r, depth)
    r.unwind(level) if r.leaving
    r.leave(r.value)
  end

  def leaf(r, _depth)
    r.enter("Mix#leaf")
    r.leave(r.value)
  end
  alias other leaf

  def pairs(r, depth)
    r.enter("Mix#pairs")
    2.times { step(r, depth) }
    r.leave(r.value)
  end

  def yields(r, _depth)
    r.enter("Mix#yields")
    3.times { |n| yield n }
    r.leave(r.value)
  end

  def yields_tidily(r, depth)
    r.enter("Mix#yields_tidily")
    level = r.level
    block_given? ? yield(1) : step(r, depth)
    r.value
  ensure
    r.tidying(level) { leaf(r, depth) }
  end

  def blocks(r, depth)
    r.enter("Mix#blocks")
    yields(r, depth) { |n| step(r, depth) if n.odd? }
    r.leave(r.value)
  end

  def raises(r, _depth)
    r.enter("Mix#raises")
    r.leaving = Record::RAISED
    raise Oops, "no"
  end

  def raises_deep(r, depth, more = 10)
    r.enter("Mix#raises_deep")
    more.zero? ? raises(r, depth) : raises_deep(r, depth, more - 1)
    r.leave
  end

  def rescues(r, depth)
    r.enter("Mix#rescues")
    level = r.level
    begin
      r.chance(2) ? raises_deep(r, depth, 3) : step(r, depth)
    rescue Oops
      r.unwind(level)
      leaf(r, depth)
    end
    r.unwind(level) if r.leaving
    r.leave(r.value)
  end

  def rescues_by_modifier(r, depth)
    r.enter("Mix#rescues_by_modifier")
    level = r.level
    raises(r, depth) rescue r.unwind(level)
    r.leave(r.value)
  end

  def rescues_around(r, depth)
    r.enter("Mix#rescues_around")
    level = r.level
    rescues(r, depth)
    passes(r, depth)
    r.leave(r.value)
  rescue Oops
    r.unwind(level)
    r.leave(r.value)
  end

  # Its rescue clause is for another exception.
  def passes(r, depth)
    r.enter("Mix#passes")
    step(r, depth)
    r.leave(r.value)
  rescue ArgumentError, TypeError
    :never
  end

  def raises_again(r, depth)
    r.enter("Mix#raises_again")
    level = r.level
    raises(r, depth)
    r.leave(r.value)
  rescue Oops
    r.unwind(level)
    leaf(r, depth)
    r.leaving = Record::RAISED
    raise
  end

  def retries(r, depth)
    r.enter("Mix#retries")
    level = r.level
    tries = 0
    begin
      tries += 1
      tries < 3 ? raises(r, depth) : leaf(r, depth)
    rescue Oops
      r.unwind(level)
      retry
    end
    r.leave(r.value)
  end

  def ensures(r, depth)
    r.enter("Mix#ensures")
    level = r.level
    step(r, depth)
    r.value
  ensure
    r.tidying(level) do
      rescues_by_modifier(r, depth)
      leaf(r, depth)
    end
  end

  # A return in an ensure clause discards the exception in flight.
  def ensures_returning(r, depth)
    r.enter("Mix#ensures_returning")
    level = r.level
    r.chance(2) ? raises(r, depth) : step(r, depth)
  ensure
    r.unwind(level) if r.leaving
    r.leave
    return r.value
  end

  def catches(r, depth)
    r.enter("Mix#catches")
    level = r.level
    r.catcher
    catch(:out) { r.chance(3) ? throws(r, depth) : step(r, depth) }
    r.unwind(level) if r.leaving
    r.leave(r.value)
  end

  def throws(r, depth)
    r.enter("Mix#throws")
    leaf(r, depth)
    if r.caught?
      r.leaving = Record::RETURNED
      throw :out, r.value
    end
    r.leave(r.value)
  end

  def breaks(r, depth)
    r.enter("Mix#breaks")
    level = r.level
    each = r.chance(2) ? :yields : :yields_tidily
    send(each, r, depth) { |n| (r.leaving = Record::RETURNED) && break if n == 1 }
    r.unwind(level) if r.leaving
    r.leave(r.value)
  end

  def nexts(r, depth)
    r.enter("Mix#nexts")
    yields(r, depth) { |n| next if n == 1; leaf(r, depth) }
    r.leave(r.value)
  end

  # Its caller records its exit.
  def returns(r, depth)
    r.enter("Mix#returns")
    yields_tidily(r, depth) { (r.leaving = Record::RETURNED) && (return r.value) }
  end

  def returns_through_proc(r, depth)
    r.enter("Mix#returns_through_proc")
    yields(r, depth, &proc { |n| (r.leaving = Record::RETURNED) && (return n) if n == 2 })
  end

  def lambdas(r, depth)
    r.enter("Mix#lambdas")
    lambda { return step(r, depth) }.call
    ->(n) { n.zero? ? leaf(r, depth) : return }.call(r.dice.rand(2))
    r.leave(r.value)
  end

  def redoes(r, depth)
    r.enter("Mix#redoes")
    again = true
    yields(r, depth) do
      leaf(r, depth)
      (again = false) || redo if again
    end
    r.leave(r.value)
  end

  def symbols(r, _depth)
    r.enter("Mix#symbols")
    r.enter("Mix#nothing")
    r.leave([self].each(&:nothing))
    r.leave(r.value)
  end

  def nothing = nil

  def maps(r, depth)
    r.enter("Mix#maps")
    [2, 1].sort_by { |n| leaf(r, depth) && n || n }.map { |_| leaf(r, depth) }
    { a: 1 }.each_with_object([]) { step(r, depth) }
    r.leave(r.value)
  end

  def method_missing(name, r, depth)
    return super unless name == :missing

    r.enter("Mix#method_missing")
    step(r, depth)
    r.leave(r.value)
  end

  def respond_to_missing?(*) = true

  define_method(:defined) do |r, depth|
    r.enter("Mix#defined")
    step(r, depth)
    r.leave(r.value)
  end

  define_method(:defined_returning) do |r, depth|
    r.enter("Mix#defined_returning")
    yields(r, depth) { |_| leaf(r, depth) }
    return r.leave(r.value)
  end

  def super_called(r, depth)
    r.enter("Mix#super_called")
    step(r, depth)
    r.leave(r.value)
  end

  def sends(r, depth)
    r.enter("Mix#sends")
    instance_exec { method(:step).to_proc.call(r, depth) }
    r.leave(r.value)
  end

  def self.singleton(mix, r, depth)
    r.enter("Mix.singleton")
    mix.step(r, depth)
    r.leave(r.value)
  end

  def singleton(r, depth)
    r.enter("Mix#singleton")
    Mix.singleton(self, r, depth)
    r.leave(r.value)
  end

  # A class with an initializer and operators.
  class Instance
    def initialize(r)
      r.enter("Mix::Instance#initialize")
      @r = r
      r.leave
    end

    def ==(other)
      @r.enter("Mix::Instance#==")
      @r.leave(other.nil?)
    end

    def to_s
      @r.enter("Mix::Instance#to_s")
      @r.leave("instance")
    end
  end

  def instances(r, _depth)
    r.enter("Mix#instances")
    one = Instance.new(r)
    text = "an #{one}" if [one].include?(nil)
    r.leave(text && r.value)
  end

  def early(r, depth)
    r.enter("Mix#early")
    return r.leave(r.value) if r.chance(2)

    step(r, depth)
    r.leave(r.value)
  end

  # Yields from a fiber: the resumer continues in the middle of these calls.
  def pauses(r, depth)
    r.enter("Mix#pauses")
    leaf(r, depth)
    Fiber.yield if r.fiber?
    step(r, depth)
    r.leave(r.value)
  end

  def fibers(r, depth)
    r.enter("Mix#fibers")
    running = Array.new(2) { r.fiber { |theirs| 2.times { pauses(theirs, depth + 5) } } }
    until running.empty?
      fiber = running.sample(random: r.dice)
      fiber.alive? ? fiber.resume : running.delete(fiber)
      leaf(r, depth)
    end
    r.leave(r.value)
  end

  def fibers_left(r, depth)
    r.enter("Mix#fibers_left")
    r.fiber { |theirs| pauses(theirs, depth + 5) }.resume
    r.leave(r.value)
  end

  def items(r, yielder)
    r.enter("Mix#items")
    2.times do |n|
      leaf(r, 0)
      yielder << n
    end
    r.leave(r.value)
  end

  def enumerates(r, depth)
    r.enter("Mix#enumerates")
    level = r.level
    items = Enumerator.new { |yielder| items(r.another(fiber: true), yielder) }
    begin
      3.times { items.next && leaf(r, depth) }
    rescue StopIteration
      r.unwind(level)
    end
    r.leave(r.value)
  end

  def enumerates_half(r, depth)
    r.enter("Mix#enumerates_half")
    Enumerator.new { |yielder| items(r.another(fiber: true), yielder) }.next
    leaf(r, depth)
    r.leave(r.value)
  end

  # `loop` rescues the StopIteration.
  def loops(r, depth)
    r.enter("Mix#loops")
    items = Enumerator.new { |yielder| items(r.another(fiber: true), yielder) }
    loop { items.next && leaf(r, depth) }
    r.leave(r.value)
  end

  def stops(r, _depth)
    r.enter("Mix#stops")
    level = r.level
    loop { raises_stop(r) }
    r.unwind(level)
    r.leave(r.value)
  end

  def raises_stop(r)
    r.enter("Mix#raises_stop")
    r.leaving = Record::RAISED
    raise StopIteration
  end

  # Array#flatten calls to_ary through rb_check_funcall; Integer() rescues to_int.
  def lets_c_rescue(r, _depth)
    r.enter("Mix#lets_c_rescue")
    Integer("seven", exception: false)
    [Object.new].flatten
    r.leave(r.value)
  end

  CHANGING = <<~CODE
    def changes(r, depth)
      r.enter("Mix#changes")
      Mix.class_eval(CHANGING, __FILE__, __LINE__)
      step(r, depth)
      r.leave(r.value)
    end
  CODE
  class_eval(CHANGING, __FILE__, __LINE__)

  # Leaves its last method without a return event, and records its depth without a call.
  def endless(r, depth)
    r.enter("Mix#endless")
    deepest = [0]
    begin
      raise SystemStackError if Record::KEEP # thousands of entries without a return

      deeper(deepest, 0)
    rescue SystemStackError
      r.add("Mix#deeper", deepest[0] + 1, Record::RAISED) unless Record::KEEP
    end
    leaf(r, depth)
    r.leave(r.value)
  end

  def deeper(deepest, n)
    deepest[0] = n
    deeper(deepest, n + 1)
  end

  def waits(r, wait)
    r.enter("Mix#waits")
    wait.call
    r.leave
  end

  def waits_tidily(r, wait, deeper = 3)
    r.enter("Mix#waits_tidily")
    level = r.level
    deeper.zero? ? waits(r, wait) : waits_tidily(r, wait, deeper - 1)
  ensure
    r.tidying(level) { leaf(r, 0) }
  end

  def kills(r, depth)
    r.enter("Mix#kills")
    r.thread(Record::RETURNED) { |theirs, wait| waits_tidily(theirs, wait) }.kill.join
    leaf(r, depth)
    r.leave(r.value)
  end

  def told(r, depth)
    r.enter("Mix#told")
    level = r.level
    thread = r.thread(Record::RAISED) { |theirs, wait| waits_tidily(theirs, wait) }
    thread.raise(Told, "now")
    begin
      thread.join
    rescue Told
      r.unwind(level)
    end
    leaf(r, depth)
    r.leave(r.value)
  end

  def times_out(r, depth)
    r.enter("Mix#times_out")
    level = r.level
    begin
      r.timeout { |wait| waits_tidily(r, wait) }
    rescue Told
      r.unwind(level)
    end
    leaf(r, depth)
    r.leave(r.value)
  end

  def schedules(r, depth)
    r.enter("Mix#schedules")
    Thread.new do
      Fiber.set_scheduler(Scheduler.new)
      3.times { Fiber.schedule { sleeps(r.another, depth + 10) } }
    end.join
    r.leave(r.value)
  end

  def sleeps(r, depth)
    r.enter("Mix#sleeps")
    2.times do
      leaf(r, depth)
      sleep 0.0001
    end
    r.leave(r.value)
  end

  def transfers(r, depth)
    r.enter("Mix#transfers")
    back = Fiber.current
    unless r.fiber?
      theirs = r.another(fiber: true)
      there = Fiber.new { back.transfer(goes_back(theirs, depth, back)) }
      2.times { there.transfer && leaf(r, depth) }
    end
    r.leave(r.value)
  end

  def goes_back(r, depth, back)
    r.enter("Mix#goes_back")
    leaf(r, depth)
    back.transfer(1)
    leaf(r, depth)
    r.leave(1)
  end

  def enclosing(more, &block) = more.zero? ? block.call : enclosing(more - 1, &block)
end

seed, calls, *probes = ARGV
$VERBOSE = nil
Mix.new.enclosing(10) do
  Gate.on(*probes.map(&:to_sym)) unless probes.empty?
  threads = Array.new(4) do |n|
    Thread.new do
      record = Record.new(Random.new(Integer(seed) + n), [Integer(calls) / 4])
      while record.budget[0].positive?
        begin
          Mix.new.step(record, 0)
        rescue Oops
          record.unwind(0)
        end
      end
    end
  end
  threads.each(&:join)
end
report = Record.report(ENV["KEEP"] == "1")
probes.empty? ? puts(JSON.generate(report)) : Gate.done(report)
# rubocop:enable Lint/EnsureReturn, Style/ExplicitBlockArgument, Style/Lambda
# rubocop:enable Style/RedundantReturn, Style/Semicolon
