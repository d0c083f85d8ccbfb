# frozen_string_literal: true

# A program that does at random what a Ruby VM can do, for `rake hunt`, which raises and lowers
# probes meanwhile. It is right when it ends by itself and says "done".
#
#   ruby -rprobescope/auto spec/hunt/program.rb SEED SECONDS [WITHOUT,...]
#
# Each public method of Doings is one thing to do. The seed decides what is done in which order, in
# each thread by itself. WITHOUT leaves some out: a VM that crashes by itself in one of them is no
# finding.
require "English"
require "continuation" if ENV["HUNT_CONTINUATIONS"]
require "delegate"
require "objspace"
require "tempfile"
require "timeout"
require "weakref"
# rubocop:disable Style/EvalWithLocation, Security/Eval
Warning[:experimental] = false

Declined = Class.new(StandardError)
class Loud < StandardError
  def backtrace = super&.reverse
  def message = "loud #{super}"
end

class Quiet < StandardError
  def backtrace = nil
  def set_backtrace(_lines) = nil
end

module Refined
  refine Integer do
    def twice = self * 2
  end
  refine String do
    def charge = raise(Declined, self, caller)
  end
end

module Counted
  def leaf(number) = super + 1
end

class Base
  def leaf(number) = number
  def block(number) = yield(number)
  def keyword(number:, other: 2, **rest) = number + other + rest.size
  def optional(number = 1, *more, &block) = block ? block.call(number) : more.size

  def ensured(number)
    yield
  ensure
    leaf(number)
  end

  def method_missing(name, *arguments) = name.start_with?("ghost") ? arguments.size : super
  def respond_to_missing?(name, _all = false) = name.start_with?("ghost")
end

class Child < Base
  prepend Counted
  alias other leaf
  define_method(:defined) { |number| leaf(number) }
  attr_accessor :value
end

using Refined

class Doings
  HERE = Process.pid
  TOLD = Thread::Queue.new
  NOT_DELIVERED = Thread::Queue.new

  def initialize(dice, deadline, without, depth = 0)
    @dice, @deadline, @without, @depth = dice, deadline, without, depth
    @object = Child.new
    @kept = []
    @steps = 0
  end

  attr_reader :steps

  NAMES = -> { @names ||= Doings.public_instance_methods(false).sort - %i[fork_one steps run step works_until_interrupted] }

  def run
    names = NAMES.call - @without
    until over?
      name = names[@dice.rand(names.size)]
      @steps += 1
      warn "#{Process.pid} #{name}" if ENV["HUNT_SHOW"]
      begin
        public_send(name)
      rescue Declined, StandardError, SystemStackError, NotImplementedError, ScriptError, SecurityError, UncaughtThrowError
        @object.leaf(1)
      end
    end
    self
  end

  # Not until the deadline, as a rule.
  def works_until_interrupted
    until over?
      calls_with_blocks
      raises_in_a_singleton
    end
    :not_interrupted
  end

  # Another thing inside the one that is being done, but not for ever.
  def step
    return @object.leaf(1) if @depth > 6 || over?

    @depth += 1
    names = NAMES.call - @without
    public_send(names[@dice.rand(names.size)])
  ensure
    @depth -= 1 if @depth.positive?
  end

  # Calls

  def calls_in_a_loop
    i = 0
    while i < 300
      @object.leaf(i)
      @object.other(i)
      @object.defined(i)
      @object.keyword(number: i, **(i.even? ? {} : { rest: i }))
      @object.optional(i, *[1, 2].take(i % 3))
      i += 1
    end
  end

  def calls_with_blocks
    50.times { |n| @object.block(n) { |m| m.twice + @object.ensured(m) { m } } }
    [1, 2, 3].each { |n| return n if n == chance(4) }
    (1..5).lazy.map { |n| @object.leaf(n) }.select(&:even?).first(1)
  end

  def calls_by_name
    20.times do |n|
      @object.public_send(%i[leaf other defined].sample(random: @dice), n)
      @object.ghost(n)
      @object.method(:leaf).to_proc.call(n)
      Base.instance_method(:leaf).bind_call(@object, n)
      @object.instance_exec(n) { |m| leaf(m) }
      :leaf.to_proc.call(@object, n)
    end
  end

  def throws_and_breaks
    catch(:out) { 10.times { |n| @object.ensured(n) { throw :out if n == chance(10) } } }
    [1, 2].each { |n| @object.ensured(n) { break } }
    proc { |n| next n }.call(1)
    ->(n) { n }.call(1)
  end

  def recurses_to_the_limit
    return unless rare?(10)

    depth = 0
    forever = lambda { |n|
      depth = n
      @object.ensured(n) { forever.call(n + 1) }
    }
    Thread.new { forever.call(0) rescue SystemStackError }.tap { |thread| thread.report_on_exception = false }.value
    depth
  end

  # Exceptions

  # A singleton method whose exception has a backtrace of its own; by the time it is rescued its
  # object and method are gone.
  def raises_in_a_singleton
    begin
      charge = Object.new
      def charge.charge = raise(Declined, "declined", caller)
      charge.charge
    ensure
      (500 + (chance(40) * 100)).times { |n| +"string #{n}" }
      GC.start if rare?(4)
    end
  rescue Declined => e
    e.backtrace.size
  end

  def raises_with_backtraces
    error = [Declined, Loud, Quiet, Class.new(StandardError), Class.new(Declined) { def self.exception(*) = raise(Loud, "in exception") }]
    30.times do |n|
      type = error.sample(random: @dice)
      case n % 8
      when 0 then raise type, "own", caller
      when 1 then raise type, "none", nil
      when 2 then raise type, "odd", ["a:1", "", "\xff:x", ":0"]
      when 3 then raise(type.new("again").tap { |e| e.set_backtrace(caller) })
      when 4 then begin raise type, "cause" rescue raise Declined, "effect" end
      when 5 then raise type.new("frozen").freeze
      when 6 then Integer("x") rescue raise
      else "a".charge
      end
    rescue StandardError => e
      e.backtrace&.first
      e.full_message(highlight: false) if rare?(5)
      begin raise e rescue $ERROR_INFO.cause end
    end
  end

  def retries
    tries = 0
    begin
      @object.ensured(tries) { raise Declined if (tries += 1) < 5 }
    rescue Declined
      retry
    end
    raise Declined rescue 1
  end

  def raises_out_of_c
    [1, 2].sort_by { |_n| raise Declined }
  rescue Declined
    [3, 1].max_by { |n| n.zero? ? 1 : raise(Loud) }
  end

  def raises_while_leaving
    begin
      @object.ensured(1) { raise Declined, "first" }
    ensure
      begin raise Loud, "second" rescue @object.leaf(1) end
    end
  rescue Declined
    step
  end

  # Definitions

  def redefines_while_running
    name = "again#{chance(5)}"
    Child.class_eval("def #{name}(depth) = depth.zero? ? 1 : (Child.class_eval('def #{name}(_) = 2'); #{name}(depth - 1))", "redefined.rb",
                     1 + chance(9))
    @object.public_send(name, 3)
    rare?(2) ? Child.send(:remove_method, name) : Child.send(:undef_method, name)
    Child.class_eval { define_method(name) { |number| number } }
    @object.public_send(name, 1)
  end

  def makes_classes
    10.times do |n|
      one = Class.new(rare?(2) ? Base : Child) { eval("def leaf(number) = super + #{n}", binding, "made#{n}.rb", n) }
      one.new.leaf(n)
      one.include(Module.new { def block(number) = super { yield number } })
      one.new.block(n) { |m| m }
      one.singleton_class.define_method(:build) { |number| new.leaf(number) }
      one.build(n)
      @kept << one if rare?(5)
    end
    @kept.shift while @kept.size > 20
    Object.send(:remove_const, :Passing) if Object.const_defined?(:Passing)
    Object.const_set(:Passing, Class.new(Base)).new.leaf(1)
  end

  def makes_singletons
    20.times do |n|
      object = Object.new
      object.define_singleton_method(:work) { |depth| depth.zero? ? n : work(depth - 1) }
      object.work(2)
      object.extend(Counted) if rare?(3)
      object.singleton_class.class_eval { def fail = raise(Declined) }
      object.fail rescue object.work(1)
    end
  end

  def evaluates
    local = chance(9)
    eval("@object.leaf(local) + (1..#{local}).sum { |n| @object.leaf(n) }", binding, "evaluated.rb", 1 + local)
    RubyVM::InstructionSequence.compile("def passing_by = #{local}\npassing_by\nbegin; raise 'compiled'; rescue; 1; end",
                                        "compiled.rb").eval
    TOPLEVEL_BINDING.eval("[#{local}].map { |n| n.to_s }")
    Object.class_eval { remove_method :passing_by if private_method_defined?(:passing_by) || method_defined?(:passing_by) }
  end

  def loads_a_file
    Tempfile.create(["loaded", ".rb"]) do |file|
      file.write("module Loaded\n  def self.work(n) = n.zero? ? raise(ArgumentError) : work(n - 1)\nend\nLoaded.work(3) rescue Loaded.name\n")
      file.close
      load(file.path, rare?(2))
      Object.send(:remove_const, :Loaded) if Object.const_defined?(:Loaded)
    end
  end

  # Memory

  def stresses_the_collector
    return unless rare?(3)

    GC.auto_compact = false if GC.respond_to?(:auto_compact=) # each allocation would move everything
    GC.stress = true
    @object.leaf(1)
    raises_in_a_stressed_call
  ensure
    GC.stress = false
  end

  def compacts
    return unless GC.respond_to?(:compact)

    rare?(3) ? GC.compact : GC.start(full_mark: rare?(2), immediate_sweep: rare?(2))
    GC.auto_compact = rare?(4) if GC.respond_to?(:auto_compact=)
    Object.new.then { |object| object.singleton_class.instance_methods(false) }
  end

  def allocates
    keep = Array.new(200) { |n| n.even? ? +"x" * n : [n, { n => n.to_s }] }
    @kept << keep.sample(random: @dice) << Struct.new(:a, :b).new(1, keep) << WeakRef.new(Object.new)
    ObjectSpace.define_finalizer(Object.new, proc { TOLD.size })
    @kept.clear if rare?(3)
  end

  # Not GC.verify_internal_consistency: it aborts by itself where a TracePoint is on a method of
  # define_method (no write barrier from the method entry to the TracePoint; Ruby 3.1 to 3.4).
  def walks_the_heap
    return unless rare?(5)

    all = ObjectSpace.each_object([Array, String, Exception, Module].sample(random: @dice)).first(20_000)
    all.last(200).each { |one| one.is_a?(Array) ? one.size : one.class }
    ObjectSpace.each_object(Array).to_a.last(300).each { |one| one.first(3).each(&:class) }
    ObjectSpace.count_objects
    ObjectSpace.memsize_of(all)
  end

  def traces_allocations
    ObjectSpace.trace_object_allocations do
      one = +"traced"
      ObjectSpace.allocation_sourceline(one)
      @object.leaf(1)
    end
  end

  # Others who look

  def traces_by_itself
    seen = 0
    events = [%i[call return], %i[c_call c_return], %i[line], %i[raise], %i[b_call b_return]].sample(random: @dice)
    trace = TracePoint.new(*events) { seen += 1 }
    rare?(2) ? trace.enable(target: Child.instance_method(:leaf)) { @object.leaf(1) } : trace.enable { step }
    seen
  rescue ArgumentError # this target has no such event
    seen
  end

  def leaves_a_trace_on
    trace = TracePoint.new(:call, :return) { @object&.hash }
    trace.enable(target: Base.instance_method(:leaf))
    @object.leaf(1)
    rare?(2) ? trace.disable : @kept << trace
  end

  def looks_at_threads
    Thread.list.each { |thread| thread.backtrace_locations(0, 3)&.map(&:path) }
    caller_locations(0).map(&:label)
    binding.local_variables
    ObjectSpace.reachable_objects_from(@object)&.size
  end

  # Concurrency

  def starts_threads
    threads = Array.new(1 + chance(3)) do
      thread do |doings|
        doings.calls_in_a_loop
        doings.step
      end
    end
    threads.each { |one| one.join(0.2) || one.kill }
  end

  def interrupts_threads
    victim = thread(&:works_until_interrupted)
    sleep(chance(5) / 1000.0)
    victim.raise(Loud, "from outside") if (raised = rare?(2))
    victim.kill unless raised
    NOT_DELIVERED << 1 if victim.join.value == :not_interrupted
  end

  def hands_over
    queue = Thread::SizedQueue.new(2)
    worker = thread { 20.times { queue << @object.leaf(1) } }
    20.times { queue.pop }
    worker.join
    lock = Thread::Mutex.new
    Array.new(3) do
      thread do
        lock.synchronize do
          @object.leaf(1)
          Thread.pass
        end
      end
    end.each(&:join)
  end

  def runs_fibers
    fibers = Array.new(3) do |n|
      Fiber.new do |value|
        loop { value = Fiber.yield(@object.leaf(value || n)) }
      ensure
        @object.leaf(n)
      end
    end
    10.times { |n| fibers[n % 3].resume(n) }
    fibers.first.raise(Declined) rescue Declined
    @kept << fibers.last # is left in the middle of its calls
    inner = Fiber.new { Fiber.new { @object.leaf(Fiber.yield || 1) }.tap(&:resume).resume(2) }
    inner.resume
  end

  # Requests on threads and in fibers: some are done, some are left to the collector. Nothing
  # without the library.
  def serves_requests
    return unless defined?(Probescope::Native::Request)

    serve = lambda do |&work|
      request = Probescope::Native::Request.start("GET", "/#{@dice.rand(50)}", nil, nil)
      outer = Probescope::Native.enter_request(request)
      work.call
    ensure
      Probescope::Native.enter_request(outer)
      request.done(200, nil) if request && rare?(2)
    end
    fibers = Array.new(3) { Fiber.new { serve.call { 3.times { calls_in_a_loop.then { Fiber.yield } } } } }
    20.times { fibers.sample(random: @dice).then { |fiber| fiber.resume if fiber.alive? } }
    thread { |doings| serve.call { doings.calls_in_a_loop } }
    serve.call { serve.call { calls_in_a_loop } }
  end

  def enumerates_outside
    enumerator = Enumerator.new { |y| 5.times { |n| @object.ensured(n) { y << @object.leaf(n) } } }
    3.times { enumerator.next }
    enumerator.peek
    rare?(2) ? loop { enumerator.next } : enumerator.rewind
    Enumerator.produce(1) do |n|
      raise StopIteration if n > 50

      n + 1
    end.take(60)
  end

  def transfers
    main = Fiber.current
    one = Fiber.new do
      @object.leaf(1)
      main.transfer(2)
    end
    one.transfer
  end

  def times_out
    Timeout.timeout(0.001 * (1 + chance(5)), rare?(2) ? Declined : nil) { calls_with_blocks until over? }
  rescue Timeout::Error, Declined
    1
  end

  def gets_signals
    return unless Process.pid == HERE && Thread.current == Thread.main

    was = trap(:USR2) do
      TOLD << caller.size
      TOLD.clear if TOLD.size > 10
    end
    3.times do
      Process.kill(:USR2, Process.pid)
      @object.leaf(1)
    end
    trap(:USR2, was || "DEFAULT")
  end

  # On one thread alone: two threads of a Ractor that take at the same time miss each other's
  # wake-ups and wait for ever (3.1.2 and 3.3.8 without a library: 6 of 6 programs).
  def runs_ractors
    return unless rare?(6) && Thread.current == Thread.main

    # YJIT of 3.3.8 panics by itself where methods are redefined that another Ractor calls.
    calls = !(defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?)
    ractor = Ractor.new(chance(50), calls) do |count, calls|
      object = Child.new
      (0...count).sum do |n|
        next n.odd? ? (raise ArgumentError, "in a ractor" rescue 1) : [n].map { |m| m + 1 }.sum unless calls

        charge = Object.new
        def charge.charge = raise(Declined, "in a ractor", caller)
        object.ensured(n) { n.odd? ? (charge.charge rescue 1) : [n].map { |m| object.leaf(m) }.sum }
      end
    end
    ractor.respond_to?(:value) ? ractor.value : ractor.take
  end

  # Processes

  def forks
    fork_one if rare?(6) && Process.pid == HERE && Thread.current == Thread.main
  end

  # The thread that forks is the child's only one, and its main one.
  def forks_from_a_thread
    return unless rare?(12) && Process.pid == HERE

    thread(&:fork_one).join
  end

  def runs_commands
    return unless rare?(10)

    IO.popen(["true"], &:read)
    spawn("true").then { |pid| Process.wait(pid) }
  end

  def waits
    reader, writer = IO.pipe
    thread do
      sleep 0.002
      writer.write("x")
    end
    reader.read(1)
    [reader, writer].each(&:close)
    sleep(chance(8) / 1000.0)
  end

  def fork_one
    seed = @dice.rand(1 << 30)
    pid = fork do
      Doings.new(Random.new(seed), [now + 0.3, @deadline].min, @without).run
      $stdout.flush
      rare?(2) ? exit!(0) : exit(true)
    end
    status = Process.wait2(pid).last
    return if status.success? || status.termsig == 9

    warn "HUNT: a child of seed #{seed}: #{status}"
    exit!(3)
  end

  private

  def raises_in_a_stressed_call
    charge = Object.new
    def charge.charge = raise(Declined, "stressed", caller(1, 2))
    charge.charge
  rescue Declined
    1
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  def over? = now > @deadline
  def chance(of) = @dice.rand(of)
  def rare?(one_in) = @dice.rand(one_in).zero?

  def thread
    seed = @dice.rand(1 << 30)
    Thread.new do
      Thread.current.report_on_exception = false
      yield Doings.new(Random.new(seed), @deadline, @without, @depth + 3)
    rescue StandardError, NotImplementedError
      nil
    end
  end
end

seed, seconds, without = ARGV
without = without.to_s.split(",").map(&:to_sym)
# These versions crash by themselves when a Ractor is created while allocations are traced (Bug
# #18464).
traces = Integer(seed).even?
without << (traces ? :runs_ractors : :traces_allocations) if RUBY_VERSION.match?(/\A3\.1\.[0-3]\z/)
# The same when a collection begins while objspace's hook forgets an object: docs/decisions/196.
without << (traces ? :stresses_the_collector : :traces_allocations) if RUBY_VERSION < "3.3"
deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + Float(seconds)
$stdout.sync = true
puts "ready"
others = Array.new(2) do |n|
  Thread.new do
    Doings.new(Random.new(Integer(seed) + n + 1), deadline, without).run.steps
  end.tap { |thread| thread.report_on_exception = false }
end
steps = Doings.new(Random.new(Integer(seed)), deadline, without).run.steps
steps = [steps, *others.map { |other| other.value rescue 0 }].join(" ")
puts "done #{steps}, #{Doings::NOT_DELIVERED.size} exceptions from other threads did not arrive"
# rubocop:enable Style/DocumentDynamicEvalDefinition, Style/EvalWithLocation, Security/Eval
