# frozen_string_literal: true

# Programs that could make a tracer in their process fail, or that could notice it. Each runs with
# every probe attached and without probescope, and must write the same and end alike. `listen` waits
# until the tracer is attached.
HOSTILE_PROGRAMS = {
  "names with ANSI codes, line ends, NUL, 10 kB and bytes that are no UTF-8" => <<~'RUBY',
    names = ["\e[31mred\e[0m\r\n\t", "nul\0nul", "x" * 10_240, "\xff\xfe\x80 \xc3", "", "%s%n%p",
             "'; exit()", "\u202Etfel",
             "caf\xe9".dup.force_encoding("ISO-8859-1"), "utf16".encode("UTF-16LE")]
    listen
    types = names.map do |name|
      Class.new(StandardError) do
        define_singleton_method(:name) { name }
        define_singleton_method(:to_s) { name }
      end
    end
    klass = Class.new do
      names.each do |name|
        next unless name.valid_encoding?

        define_method(name) { |&block| block ? block.call(name) : name.bytesize }
      end
    end
    2.times do
      klass.instance_methods(false).sort_by(&:inspect).each do |name|
        p klass.new.public_send(name)
        klass.new.public_send(name) { |n| raise types.first, n }
      rescue StandardError => e
        p e.message.bytesize, e.backtrace.size
      end
      types.each { |type| p((raise type, type.name rescue $!.message.bytesize)) }
      settle
    end
    raise types.first, names.first
  RUBY

  "files with such names, and lines that cannot be" => <<~'RUBY',
    listen
    files = ["\e[2J\e[31mfile\n.rb", "f" * 10_240, "(\xff\xfe)", "", "/", "../" * 400, "a b\tc",
             "file\\\"$(reboot)`id`.rb"]
    lines = [0, 1, -5, 2**30, 2**31 - 2]
    files.product(lines).each_with_index do |(file, line), n|
      eval("def m#{n}(x) = x.zero? ? raise(ArgumentError, \"m\#{x}\") : x", nil, file, line)
      p send(:"m#{n}", 1),
        (send(:"m#{n}", 0) rescue [$!.message, $!.backtrace.first, $!.backtrace_locations&.first&.lineno])
    end
    p caller_locations.size, (eval("raise 'here'", nil, "\0nul", 3) rescue $!.class)
    settle
    m6(0)
  RUBY

  "anonymous classes whose name raises" => <<~'RUBY',
    $asked = 0
    anonymous = Class.new(StandardError) do
      %i[name to_s inspect hash object_id].each do |m|
        define_singleton_method(m) { $asked += 1; raise "no #{m}" }
      end
      def work = 1
      def fail = raise(self.class)
    end
    listen
    50.times { anonymous.new.work; (anonymous.new.fail rescue 1) }
    settle
    50.times { anonymous.new.work; (anonymous.new.fail rescue 1) }
    child = Class.new(anonymous)
    p((raise child rescue $!.class.equal?(child)), $asked)
    raise child, "the end" # to show it, Ruby asks for its name
  RUBY

  "Module#name, to_s and inspect overridden for all" => <<~'RUBY',
    class Order
      def pay = [raise("unpaid")] rescue 1
    end
    class Module
      def name = raise("name of #{__id__.class}")
      def to_s = ($told = true; "told")
      alias inspect to_s
    end
    listen
    100.times { Order.new.pay; Class.new(Order).new.pay; Module.new }
    settle
    100.times { Order.new.pay }
    puts $told.inspect, "#{Order}"
    Order.name
  RUBY

  "objects that are no exceptions, raised" => <<~'RUBY',
    listen
    class Convertible < BasicObject
      def initialize(to) = @to = to
      def exception(*) = @to
    end
    class Nothing < BasicObject; end
    class Missing
      def method_missing(name, *) = name == :exception ? ArgumentError.new("from method_missing") : super
      def respond_to_missing?(*) = true
    end
    things = [BasicObject.new, Convertible.new(BasicObject.new), Convertible.new(nil),
              Convertible.new(KeyError.new("key")), Convertible.new(Convertible.new(1)), Nothing,
              Missing.new, nil, 1, :raise, BasicObject, Class, Module.new]
    things.each do |thing|
      raise thing
    rescue Exception => e
      p [e.class, e.message, e.backtrace.size]
    end
    settle
    raise things[1]
  RUBY

  "exceptions whose message raises, sleeps, or is no String" => <<~'RUBY',
    listen
    $asked = Hash.new(0)
    class Raises < StandardError
      def message = ($asked[:message] += 1; raise "no message")
      def to_s = ($asked[:to_s] += 1; raise "no to_s")
      def inspect = ($asked[:inspect] += 1; raise "no inspect")
      def detailed_message(**) = ($asked[:detailed] += 1; raise "no details")
      def full_message(**) = ($asked[:full] += 1; raise "nothing full")
    end
    class Sleeps < StandardError
      def message = ($asked[:sleeping] += 1; sleep 0.02; "slept")
      alias to_s message
    end
    class Odd < StandardError
      def message = 42
      def to_s = nil
    end
    [Raises, Sleeps, Odd].each { |type| 30.times { raise type rescue 1 } }
    30.times { Object.new.no_such_method rescue 1 }
    settle
    p $asked, (raise Odd rescue $!.message), (raise Odd, Object rescue $!.full_message.lines.size)
    p((raise Sleeps rescue $!.message), $asked)
    Thread.new { Thread.current.report_on_exception = false; raise Raises }.join rescue p $!.class
    raise Raises
  RUBY

  "inspect of a receiver that is counted, in NoMethodError and NameError" => <<~'RUBY',
    listen
    class Receiver
      def inspect = ($inspected = $inspected.to_i + 1; raise "never")
      alias to_s inspect
      def fail = nothing_there
      def sum = self + 1
    end
    100.times { (Receiver.new.fail rescue 1); (Receiver.new.sum rescue 1) }
    settle
    p $inspected
    Receiver.new.sum rescue p $!.class, $!.name, $!.receiver.class
    p $inspected
  RUBY

  "backtraces that are frozen, overridden, or raise" => <<~'RUBY',
    listen
    $asked = Hash.new(0)
    class Own < StandardError
      def backtrace = ($asked[:own] += 1; ["mine:1:in `x'"])
      def backtrace_locations = ($asked[:locations] += 1; nil)
    end
    class None < StandardError
      def backtrace = nil
    end
    class Bad < StandardError
      def backtrace = ($asked[:bad] += 1; @bt && raise("no backtrace"))
      def set_backtrace(bt) = ($asked[:set] += 1; super)
    end
    class Super < StandardError
      def backtrace = super&.map(&:upcase)
      def full_message(...) = super.downcase
    end
    class Number < StandardError
      def backtrace = 5
    end
    def deep(type, n = 20) = n.zero? ? raise(type, "deep") : deep(type, n - 1)
    [Own, None, Bad, Super].each do |type|
      20.times { deep(type) rescue 1 }
      deep(type) rescue p [type, $!.backtrace&.size, $!.backtrace&.first&.sub(/\A.*:/, ""),
                           $!.full_message(highlight: false).lines.size]
      begin; begin; deep(type); rescue => e; raise e; end; rescue => e; p e.backtrace&.size; end
    end
    (deep(Number) rescue p $!.class)
    frozen = (raise "frozen" rescue $!).freeze
    p frozen.backtrace.frozen?, (raise frozen rescue $!.class), (raise Own.new.freeze rescue $!.class)
    p (deep(StandardError) rescue $!.backtrace.freeze.size),
      (raise RuntimeError, "x", ["a:1"].freeze rescue $!.backtrace)
    e = (deep(IOError) rescue $!)
    p e.backtrace.equal?(e.backtrace), (e.backtrace << "mine").size, e.backtrace.size,
      e.backtrace_locations.size
    p e.dup.backtrace.size, e.clone.backtrace.equal?(e.backtrace), (e == e.dup),
      e.exception("other").backtrace&.size
    settle
    p $asked
    deep(Super)
  RUBY

  "set_backtrace with odd values" => <<~'RUBY',
    listen
    locations = caller_locations(0)
    values = [nil, [], "one:1", ["a:1", "b:2"], ["\xff\xfe:1\0"], [""], ["x" * 20_000], 5, [1], [nil],
              :sym, {}, locations, ["a:99999999999999999999:in"]]
    values.each do |value|
      e = RuntimeError.new("set")
      p((e.set_backtrace(value) rescue [$!.class, $!.message]))
      begin
        raise e
      rescue => again
        p again.backtrace&.size, again.full_message(highlight: false).bytesize
      end
      begin
        raise RuntimeError, "given", value
      rescue Exception => given
        p given.class, given.backtrace&.size
      end
      begin; raise e, "anew", cause: nil; rescue => again; p again.backtrace&.size; end
    end
    settle
    e = RuntimeError.new("last")
    e.set_backtrace(["here:1", "there:2:in `x'"])
    raise e
  RUBY

  "class, hash, ==, respond_to?, method_missing and object_id overridden" => <<~'RUBY',
    listen
    $asked = []
    overrides = Module.new do
      %i[class hash == eql? equal? respond_to? respond_to_missing? method_missing object_id __id__ is_a?
         kind_of? instance_of? instance_variable_get nil? ! != === =~ itself frozen? singleton_class
         to_s inspect dup clone freeze coerce to_str to_ary].each do |m|
        define_method(m) { |*| $asked << m; raise "no #{m}" }
      end
    end
    $VERBOSE = nil
    hostile = Class.new(StandardError) do
      include overrides
      overrides.instance_methods.each { |m| define_method(m, overrides.instance_method(m)) }
    end
    object = Class.new do
      overrides.instance_methods.each { |m| define_method(m, overrides.instance_method(m)) }
      def work(n) = n
      def each = yield(self)
    end
    50.times { object.new.work(1); object.new.each { |o| o.work(2) } }
    50.times { begin; raise hostile, "x"; rescue hostile; end }
    settle
    50.times { begin; raise hostile; rescue Exception; end }
    puts $asked.tally.sort.inspect
    catch(object.new) { 1 }
    Fiber.new { object.new.work(1) }.resume
    ObjectSpace.garbage_collect
    puts $asked.tally.sort.inspect
    begin; raise hostile; rescue Exception => e; raise IOError, "after it"; end
  RUBY

  "Exception.exception, Exception.new and Kernel#raise overridden" => <<~'RUBY',
    class Chosen < StandardError
      def self.exception(*given) = (puts "exception #{given.size}"; RuntimeError.new("chosen"))
      def exception(*given) = (puts "again #{given.size}"; given.empty? ? self : IOError.new("again"))
    end
    class Broken < StandardError
      def self.new(*) = raise(KeyError, "no new")
      def self.===(other) = (puts "asked"; super)
    end
    class Liar < StandardError
      def self.===(other) = true
      def self.exception(*) = 5
    end
    listen
    p((raise Chosen rescue $!), (raise Chosen, "with" rescue $!), (raise Chosen.allocate, "x" rescue $!))
    p((raise Broken rescue $!.class), (raise Liar rescue $!.class))
    begin; raise "any"; rescue Broken, Liar => e; p e.message; end
    module Kernel
      alias plain_raise raise
      def raise(*given, **options) = (puts "raise #{given.size}"; plain_raise(*given, **options))
    end
    p((raise "mine" rescue $!.backtrace.size), (Integer("x") rescue $!.backtrace.size))
    settle
    raise Chosen, "last"
  RUBY

  "callers: all forms, refined, overridden and aliased" => <<~'RUBY',
    listen
    module Refined
      refine Kernel do
        def caller(*) = ["refined", *super]
      end
      refine Object do
        def caller_locations(*) = [:refined, *super]
      end
    end
    def forms
      [caller, caller(0), caller(1), caller(2, 1), caller(100), caller(1..), caller(0..-1),
       caller(-3..-1), caller(0, 0), caller(1, nil),
       (caller(-1) rescue $!.message), (caller("x") rescue $!.message),
       (caller(1, -1) rescue $!.message), (caller(1, 2, 3) rescue $!.backtrace.size),
       caller_locations.map(&:lineno), caller_locations(0).map(&:lineno),
       caller_locations(1, 1).map(&:label), caller_locations(0..1).map(&:path),
       Kernel.caller, Kernel.caller(0), Kernel.caller_locations(1, 1).map(&:to_s),
       send(:caller), method(:caller).call, method(:caller).unbind.bind_call(self, 0),
       __send__(:caller_locations, 0, 2).map(&:to_s), [1].map { caller(0, 2) },
       Object.new.instance_eval { caller(0, 1) }, binding.eval("caller(0, 2)"),
       Thread.new { caller(0) }.value]
    end
    def nested(n) = n.zero? ? forms : nested(n - 1)
    puts nested(3)
    using Refined
    p((caller rescue $!.class), (caller_locations(0).first rescue $!.class), method(:caller).arity,
      Kernel.method_defined?(:caller), Kernel.private_method_defined?(:caller))
    class Caller
      def caller(*) = super.map(&:upcase)
      def ask = caller(0)
      alias_method :old, :caller
      def ask_old = old(0)
    end
    puts Caller.new.ask, Caller.new.ask_old
    settle
    puts nested(1)
    warn "careful", uplevel: 0
    def warned = warn("deeper", uplevel: 1)
    warned
  RUBY

  "TracePoints and set_trace_func of its own" => <<~'RUBY',
    listen
    class Traced
      def work(n) = n.zero? ? (raise "soft" rescue helper { 1 }) : work(n - 1)
      def helper = yield
      define_method(:made) { |n| n + 1 }
    end
    seen = Hash.new(0)
    note = ->(tp) { seen[[tp.event, tp.path == __FILE__ ? tp.lineno : tp.path[/<.*>/], tp.method_id]] += 1 }
    own = TracePoint.new(:call, :return, :b_call, :b_return, :line, :class, :end, :raise, &note)
    own.enable do
      3.times { |n| Traced.new.work(n) }
      Traced.new.made(1)
      class Traced; def later = 1; end
      Traced.new.later
    end
    targeted = TracePoint.new(:call, :return, :line, &note)
    targeted.enable(target: Traced.instance_method(:work)) { Traced.new.work(2) }
    settle
    blocks = TracePoint.new(:call, :return) { |tp| seen[tp.event] += 1 }
    blocks.enable(target: Traced.instance_method(:helper),
                  target_thread: (Thread.current if RUBY_VERSION >= "3.2")) { Traced.new.work(1) }
    compiled = TracePoint.new(:script_compiled) { |tp| seen[[:compiled, tp.eval_script]] += 1 }
    compiled.enable { eval("def evaluated = 1"); evaluated }
    threads = TracePoint.new(:thread_begin, :thread_end) { |tp| seen[tp.event] += 1 }
    threads.enable { Thread.new { Traced.new.work(1) }.join }
    raising = TracePoint.new(:call) { |tp| raise ArgumentError, "from a TracePoint" }
    p((raising.enable { Traced.new.work(1) } rescue $!.message))
    set_trace_func(lambda do |event, file, line, id, binding, klass|
      seen[[event, line, id]] += 1 if file == __FILE__ && event != "c-call" && event != "c-return"
    end)
    Traced.new.work(2)
    set_trace_func(nil)
    puts seen.sort_by(&:inspect).map(&:inspect)
    raising.enable
    Traced.new.work(0)
  RUBY

  "ObjectSpace traces, Coverage, finalizers that raise and a GC profiler" => <<~'RUBY',
    require "objspace"
    require "coverage"
    Coverage.start(lines: true, methods: true, branches: true)
    File.write(path = "/tmp/probescope-hostile-#{Process.pid}.rb",
               "class Covered\n  def work(n)\n    n.even? ? n : (raise 'odd' rescue 1)\n  end\nend\n" \
               "4.times { |n| Covered.new.work(n) }\n")
    listen
    load path
    p Coverage.peek_result.fetch(path)[:lines], Coverage.result.fetch(path)[:methods].values
    File.delete(path)
    ObjectSpace.trace_object_allocations do
      object = Class.new { def make = Object.new }.new.make
      p ObjectSpace.allocation_sourceline(object), ObjectSpace.allocation_method_id(object),
        ObjectSpace.allocation_class_path(object)
    end
    GC::Profiler.enable
    $finalized = 0
    100.times do
      ObjectSpace.define_finalizer(Object.new, proc { $finalized += 1; raise "never heard" if $VERBOSE.nil? })
    end
    settle
    GC.start
    p $finalized.positive?, GC::Profiler.raw_data.any?
    $VERBOSE = nil
    ObjectSpace.define_finalizer("last".dup, proc { puts "finalized" })
    ObjectSpace.trace_object_allocations_start
    raise "with traces on"
  RUBY

  "Thread.handle_interrupt, ensure and threads that die" => <<~'RUBY',
    listen
    require "timeout"
    class Guarded
      def work(log)
        Thread.handle_interrupt(IOError => :never, Timeout::Error => :on_blocking) do
          log << :masked
          100.times { step(_1) }
          log << Thread.pending_interrupt?
          Thread.handle_interrupt(IOError => :immediate) { log << :open; sleep }
        end
      rescue IOError => e
        log << e.message
      ensure
        log << :ensured
      end
      def step(n) = (raise "soft" if n.odd?) rescue n
    end
    20.times do |n|
      log = Queue.new
      thread = Thread.new { Guarded.new.work(log) }
      Thread.pass until log.size > 0
      thread.raise(IOError, "number #{n}")
      thread.join
      puts Array.new(log.size) { log.pop }.inspect.sub(/:masked, (true|false)/, ":masked, any")
    end
    settle
    p (Timeout.timeout(0.02) { loop { Guarded.new.step(1) } } rescue $!.class),
      Thread.new { Thread.exit; 1 }.value
    killed = Thread.new { begin; sleep; ensure; puts "tidy"; end }
    Thread.pass until killed.stop?
    killed.kill.join
    Thread.new { raise KeyError, "reported" }.join rescue puts $!.message
    Thread.abort_on_exception = true
    Thread.new { raise "aborts the program" }
    sleep
  RUBY

  "at_exit that raises, in at_exit, and a status of its own" => <<~'RUBY',
    at_exit { puts "first in, last out"; $stdout.flush; exit 41 }
    listen
    END { puts "END" }
    at_exit { raise "in at_exit" }
    at_exit { at_exit { puts "inner #{$!.class}"; abort "aborted" }; puts "outer #{$!.class} #{$!.message}" }
    def fails = raise(IOError, "main")
    settle
    trap("EXIT") { puts "trapped EXIT" }
    fails
  RUBY

  "a signal that kills it" => <<~'RUBY',
    listen
    trap("USR1") { raise IOError, "trapped" }
    5.times do
      Process.kill(:USR1, Process.pid)
      sleep
    rescue IOError => e
      puts e.message, e.backtrace.size
    end
    begin; Process.kill(:INT, Process.pid); sleep; rescue Interrupt => e; p e.message, e.signo; end
    trap("TERM", "SYSTEM_DEFAULT")
    settle
    $stdout.flush
    Process.kill(:TERM, Process.pid)
    sleep
  RUBY

  "stacks without end, throw without catch, fibers left behind" => <<~'RUBY',
    listen
    class Deep
      def forever(n = 0) = forever(n + 1) + 1
      def missing(...) = method_missing(:other)
      def method_missing(name, *) = name == :other ? throw(:nobody, 1) : super
      def rescued = begin; forever; rescue SystemStackError; raise(SystemStackError, "again"); end
    end
    3.times { begin; Deep.new.forever; rescue SystemStackError => e; p e.class; end }
    begin; Deep.new.forever; rescue SystemStackError => e; p e.message, e.backtrace.size > 100; end
    begin; Deep.new.missing; rescue UncaughtThrowError => e; p e.message, e.tag; end
    fibers = Array.new(50) { Fiber.new { Fiber.yield; Deep.new.forever } }
    fibers.each(&:resume)
    fibers.first(5).each { |f| begin; f.resume; rescue SystemStackError => e; p e.class; end }
    p((fibers.first.resume rescue $!.class), (Fiber.yield rescue $!.class))
    enumerators = Array.new(20) { e = [1, 2].each; e.next; e }
    enumerators.first.next
    p((enumerators.first.next rescue [$!.class, $!.result, $!.backtrace.size]), loop { raise StopIteration })
    settle
    fibers.clear
    GC.start
    ObjectSpace.each_object(Class).count.then { |n| p n.positive? }
    Deep.new.rescued
  RUBY

  "causes in a circle, retries, and exceptions kept for later" => <<~'RUBY',
    listen
    class First < StandardError; end
    def chain(n)
      n.zero? ? raise(First, "root") : (begin; chain(n - 1); rescue => e; raise(IOError, "level #{n}"); end)
    end
    e = (chain(8) rescue $!)
    depth = 0
    (depth += 1; e = e.cause) while e.cause
    p depth, e.class
    a = (raise "a" rescue $!)
    b = (raise "b", cause: a rescue $!)
    p((raise a, cause: b rescue [$!.class, $!.message]))
    tries = 0
    begin; tries += 1; raise First if tries < 5; p tries; rescue First; retry; end
    kept = Array.new(20) { |n| (chain(n % 3) rescue $!) }
    settle
    kept.each { |one| begin; raise one; rescue => again; p again.equal?(one), again.backtrace.size; end }
    def ensured
      raise "never" unless $!
      return :early
    rescue RuntimeError
      return :late
    ensure
      puts $!.inspect
    end
    p ensured, [1, 2, 3].each { |n| break n * 2 if n == 2 },
      (begin; raise "x"; ensure; p $!; end rescue $!.full_message(order: :bottom, highlight: true))
    puts kept.first.full_message(highlight: true), kept[5].full_message(highlight: false, order: :top)
    chain(2)
  RUBY

  "methods of ours taken: Thread#priority, UnboundMethod, hooks of Module" => <<~'RUBY',
    $told = []
    class Worker < Thread
      def priority = ($told << :priority; raise "no priority")
      def priority=(value) ($told << :set; raise "no priority=") end
      def [](key) = ($told << :get; super)
      def key?(key) = ($told << :key; super)
      def status = ($told << :status; super)
    end
    class Module
      def method_added(name) = $told << :"added #{name}"
      def method_removed(name) = $told << :"removed #{name}"
      def prepended(base) = $told << :prepended
      def const_missing(name) = ($told << :"missing #{name}"; raise NameError, "no #{name}")
    end
    class BasicObject
      def singleton_method_added(name)
        $told << :"singleton #{name}" unless name == :singleton_method_added
      end
    end
    # The worker has to put the hooks in while this thread sleeps.
    worker = Worker.new { loop { [1, 2].map { |n| n.to_s } } }
    listen
    p $told.reject { |what| what.start_with?("added", "singleton") } # the library's own methods
    $told.clear
    class Subject
      def work = 1
    end
    100.times { Subject.new.work }
    settle
    worker.kill
    worker.join
    p $told
    Worker.new { sleep 0.001; Subject.new.work }.join
    eval("class Subject; def later = 2; end", nil, "later.rb")
    p Subject.new.later, $told
    NoSuchConstant
  RUBY

  "core classes frozen or with their operators redefined" => <<~'RUBY',
    listen
    Exception.freeze
    Kernel.freeze
    StandardError.freeze
    class Loud
      def initialize(value) = @value = value
      def ==(other) = (puts "equal"; true)
      def hash = (puts "hash"; 1)
    end
    { Loud.new(1) => 1 }
    class Integer; def succ = self + 1; def zero? = self == 0; end
    class String; def ==(other) = eql?(other); def hash = super; end
    class Symbol; def to_s = name.dup; def to_proc = ->(o) { o.public_send(self) }; end
    class Array; def each = (i = 0; (yield self[i]; i += 1) while i < size; self); end
    class Hash; def [](key) = fetch(key, nil); end
    class NilClass; def nil? = true; def to_a = []; end
    class Warning::Own < StandardError; end
    def Warning.warn(message, **) = $stdout.puts("warned #{message.sub(/\A.*: warning: /, "")}")
    50.times { |n| (Integer("x") rescue [n].each(&:to_s)) }
    def again = 1
    def again = 2
    settle
    p again, %w[a b].each(&:upcase), { "a" => 1 }["a"]
    class Exception; def own = 1; end
  RUBY

  "forks, exec and a shell" => <<~'RUBY',
    listen
    class Forker
      def work(n) = n.zero? ? (raise "soft" rescue 0) : work(n - 1)
    end
    statuses = [
      -> { exit 3 }, -> { exit! 4 }, -> { abort "child aborts" }, -> { raise "child raises" },
      -> { Process.kill(:KILL, Process.pid); sleep },
      -> { exec "echo executed; exit 6" },
      lambda do
        at_exit { exit 7 }
        fork { 10.times { Forker.new.work(3) }; exit!(0) }.then { Process.wait(_1) }
      end
    ]
    statuses.each do |ending|
      $stdout.flush
      pid = fork { 20.times { Forker.new.work(5) }; ending.call }
      Process.wait(pid)
      p $?.exitstatus, $?.termsig
    end
    settle
    puts `echo out; exit 2`, $?.exitstatus, system("exit 5"), $?.exitstatus
    IO.popen("-") { |io| io ? print(io.read) : (Forker.new.work(2); puts "from popen") }
    $stderr.puts "nearly"
    exec("sh", "-c", "echo last; exit 9")
  RUBY

  "output closed, moved and replaced" => <<~'RUBY'
    listen
    require "stringio"
    class Teller
      def tell = ($stdout.puts("told"); raise "soft") rescue $stderr.puts("failed")
    end
    Teller.new.tell
    kept = $stdout.dup
    $stdout = $stderr = StringIO.new
    Teller.new.tell
    caught = $stdout.string
    $stdout, $stderr = kept, STDERR
    p caught
    STDIN.close
    settle
    kept.flush
    STDOUT.close
    20.times { Teller.new.tell }
    kept.puts "by the copy"
    raise "to stderr alone"
  RUBY
}.freeze
