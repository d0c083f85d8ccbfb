# frozen_string_literal: true

# Measures what probescope costs a call, a line, a turn of the VM lock, a raise and an allocation:
# not loaded, loaded, under a tracer, and after the tracer has left. Tools that one would use
# instead are measured in the same run. Each process measures one row. Writes its sections of
# docs/performance.md.
#
#   bundle exec rake bench              # some minutes, as root
#   bundle exec rake bench RUBY=/path/to/ruby OUTPUT=docs/performance-of-another.md
#   bundle exec ruby bench/overhead.rb line call programs   # prints only these sections
#   ROWS='function__stats|ruby-prof' bundle exec ruby bench/overhead.rb call shared_call
#                                     # prints only these rows of the sections
#
# Figures are the ns of the thread's own CPU, the least of several rounds. They vary from machine to
# machine; the ratios vary less.
require "json"
require "rbconfig"
%w[paths await elf info child target bpf tracer attacher].each do |name|
  require_relative "../spec/support/#{name}"
end
require_relative "performance_page"
require_relative "statistics"

class Overhead
  include Support::Await
  include Statistics

  TITLE = "# What it costs"
  OUTPUT = ENV.fetch("OUTPUT", File.join(Support::ROOT, "docs/performance.md"))
  COUNT = "{ @events = count(); }"
  # The tracer reads only the flush, so the figure is the process's own cost.
  STATS = "{ @rows = count(); }"

  # label, the traced probes and the program's action; or a peer. Ratios are taken against the row
  # with `reference`. program: a file in providers/ instead of an action.
  Row = Struct.new(:label, :probes, :action, :program, :peer, :reference, keyword_init: true)

  CALLS = [
    Row.new(label: "`function__stats` traced (exact counts, times)",
            probes: %w[function__stats stats__done], action: STATS),
    Row.new(label: "`function__slow10ms` traced",
            probes: %w[function__slow10ms stats__done], action: STATS),
    Row.new(label: "`function__entry` and `__return` traced with `count()`",
            probes: %w[function__entry function__return], action: COUNT),
    Row.new(label: "`function__entry` and `__return` traced as by `probescope flow`",
            probes: %w[function__entry function__return stats__done], program: "flow.bt"),
    Row.new(label: "`sample__stats` traced (99 Hz)",
            probes: %w[sample__stats stats__done], action: STATS),
    Row.new(label: "ruby-prof, wall time", peer: "ruby_prof", reference: true),
    Row.new(label: "TracePoint with a Ruby block that counts", peer: "tracepoint_call"),
    Row.new(label: "stackprof, wall, 100 Hz", peer: "stackprof"),
    Row.new(label: "Vernier, wall, 100 Hz", peer: "vernier")
  ].freeze
  # For such a method the hook needs the class of the event.
  SHARED_CALLS = CALLS.values_at(0, 5)
  LINES = [
    Row.new(label: "`line` traced with `count()`", probes: %w[line], action: COUNT),
    Row.new(label: "TracePoint with a Ruby block that counts", peer: "tracepoint_line", reference: true)
  ].freeze
  # Two threads take turns. From Ruby 3.2 on.
  TURNS_OF_THREADS = [
    Row.new(label: "`gvl__wait` traced with `count()`", probes: %w[gvl__wait], action: COUNT, reference: true)
  ].freeze
  RAISES = [
    Row.new(label: "`exception__stats` traced (depth and cost)",
            probes: %w[exception__stats stats__done], action: STATS),
    Row.new(label: "`exception__raise` traced with `count()`", probes: %w[exception__raise], action: COUNT),
    Row.new(label: "TracePoint with a Ruby block: place and depth", peer: "tracepoint_raise", reference: true)
  ].freeze
  STRINGS = [
    Row.new(label: "`exception__stats` traced (the strings are charged to the raise)",
            probes: %w[exception__stats stats__done], action: STATS),
    Row.new(label: "`backtrace__done` traced with `count()`",
            probes: %w[backtrace__done], action: COUNT, reference: true)
  ].freeze
  ALLOCATIONS = [
    Row.new(label: "`object__stats` traced (class, file, line)",
            probes: %w[object__stats stats__done], action: STATS),
    Row.new(label: "`object__alloc` traced with `count()`", probes: %w[object__alloc], action: COUNT),
    Row.new(label: "stackprof, object, each allocation", peer: "stackprof_object", reference: true),
    Row.new(label: "`ObjectSpace.trace_object_allocations`", peer: "allocation_tracing")
  ].freeze
  SECTIONS = [
    ["One call and its return", "call", CALLS],
    ["One call of a method that two classes have, and its return", "shared_call", SHARED_CALLS],
    ["One line", "line", LINES],
    ["One turn of the VM lock (`Thread.pass`, two threads)", "turn", TURNS_OF_THREADS],
    ["One raise, 10 frames deep", "raise", RAISES],
    ["One raise, 100 frames deep", "deep_raise", RAISES],
    ["One raise, 1,000 frames deep", "deepest_raise", RAISES],
    ["One raise whose backtrace of 100 frames becomes strings", "strings", STRINGS],
    ["One `caller(1, 1)`", "caller", STRINGS],
    ["One allocation", "alloc", ALLOCATIONS]
  ].freeze

  # A whole program: CPU per unit of its work, with and without the tracer or the peer, in turns in
  # one process.
  Program = Struct.new(:label, :script, :unit, :probes, :peer, keyword_init: true)
  PROGRAMS = [
    Program.new(label: "`hotfuncs.rb` with the probes of `probescope hot`",
                script: "hotfuncs.rb", unit: "parcels", probes: %w[sample__stats stats__done]),
    Program.new(label: "`hotfuncs.rb` with stackprof, CPU, 100 Hz",
                script: "hotfuncs.rb", unit: "parcels", peer: "stackprof_cpu"),
    Program.new(label: "`hotfuncs.rb` with Vernier, wall, 100 Hz",
                script: "hotfuncs.rb", unit: "parcels", peer: "vernier"),
    Program.new(label: "`hotfuncs.rb` with the probes of `probescope calls`",
                script: "hotfuncs.rb", unit: "parcels", probes: %w[function__stats stats__done]),
    Program.new(label: "`hotfuncs.rb` with ruby-prof, wall time",
                script: "hotfuncs.rb", unit: "parcels", peer: "ruby_prof"),
    Program.new(label: "`deepstack.rb` with the probes of `probescope exceptions`",
                script: "deepstack.rb", unit: "documents", probes: %w[exception__stats stats__done])
  ].freeze
  TURNS = 8
  TURN_CPU_SECONDS = 1.0

  def initialize(ruby: ENV.fetch("RUBY", RbConfig.ruby))
    @ruby = ruby
  end

  # Each section of the page has marks of its own, so text between them is kept.
  def write
    File.write(OUTPUT, "#{TITLE}\n") unless File.exist?(OUTPUT)
    parts = {"about" => about}
    served(SECTIONS).each { |title, work, rows| parts[work] = section(title, work, rows) }
    parts["programs"] = programs
    parts.each { |name, text| write_part("bench/overhead.rb:#{name}", text) }
  end

  # names: kinds of work in bench/subject.rb, and "programs".
  def show(names)
    puts TITLE, "", about
    served(SECTIONS.select { |_, work| names.include?(work) }).each { |one| puts "", section(*one) }
    puts "", programs if names.include?("programs")
  end

  private

  def write_part(name, text)
    PerformancePage.write(name, "<!-- #{name} -->\n#{text}<!-- end of #{name} -->\n", path: OUTPUT)
  end

  # Returns the sections without those that this Ruby can never serve.
  def served(sections)
    with_subject do |subject|
      sections.reject do |_, _, rows|
        rows.flat_map { |row| row.probes || [] }.any? { |probe| subject.info.state(probe) == :unsupported }
      end
    end
  end

  def about
    <<~MARKDOWN
      Written by `rake bench` (bench/overhead.rb) on #{`uname -srm`.strip}, #{cpu_model},
      #{`#{@ruby} -v`.strip}, #{`bpftrace --version`.strip}.
      The machine's load average was #{File.read("/proc/loadavg").split.first} at the start.

      Figures are ns of the thread's own CPU time for one call, raise or allocation: the least of
      several rounds. "Added" is the difference from the same process without the tracer or the
      other tool, before or after, whichever is cheaper. In the row "probescope loaded, no tracer"
      it is the difference from the row above. "Ratio" divides "added" by that of the row with 1.00,
      from the same run. "After detach" is measured after the tracer or the other tool has gone.
    MARKDOWN
  end

  def cpu_model = File.read("/proc/cpuinfo")[/model name\s*: (.*)/, 1] || "unknown CPU"

  def section(title, work, rows)
    warn "bench: #{title} ..."
    bare = with_subject(loaded: false) { |subject| settled(subject, work) }
    idle = with_subject { |subject| settled(subject, work) }
    wanted = available(rows).select { |row| row.label.match?(ENV.fetch("ROWS", "")) }
    measured = wanted.map { |row| [row, *measure_row(row, work)] }
    reference = measured.find { |row,| row.reference }.then { |_, *figures| added(*figures) }
    table(title, bare, idle, measured, reference)
  end

  # Returns [before, during, after] of one row. Each row has its own process, because some peers
  # leave effects in theirs.
  def measure_row(row, work)
    with_subject(loaded: row.peer.nil?) do |subject|
      before = settled(subject, work)
      during = if row.peer
                 with_peer(subject, row.peer) { measure(subject, work) }
               else
                 with_tracer(subject, row) { measure(subject, work) }
               end
      [before, during, measure(subject, work)]
    end
  end

  # Returns the second of two measurements: deep backtraces get cheaper until the heap has its full
  # size.
  def settled(subject, work) = Array.new(2) { measure(subject, work) }.last

  # On Ruby 3.1, deep raises are cheaper after any hook has come and gone, also a peer's. So the
  # reference is the cheaper of before and after.
  def added(before, during, after) = during - [before, after].min

  def table(title, bare, idle, measured, reference)
    lines = measured.map do |row, before, during, after|
      more = added(before, during, after)
      "| #{row.label} | #{ns(during)} | #{ns(more)} | #{format("%.2f", more / reference)} | #{ns(after)} |"
    end
    loaded = format("%.2f", (idle - bare) / reference)
    <<~MARKDOWN
      ## #{title}

      | | ns | added | ratio | after detach |
      |---|---|---|---|---|
      | without probescope | #{ns(bare)} | | | |
      | probescope loaded, no tracer | #{ns(idle)} | #{ns(idle - bare)} | #{loaded} | |
      #{lines.join("\n")}
    MARKDOWN
  end

  def programs
    warn "bench: whole programs ..."
    lines = available(PROGRAMS).map do |program|
      turns = turns(program)
      without, with = turns.transpose.map { |values| median(values) }
      added = turns.map { |before, during| during / before }.sort.map { |ratio| (ratio - 1) * 100 }
      format("| %s | %.1f us | %.1f us | %+.1f %% | %+.1f to %+.1f %% |", program.label,
             without * 1e6, with * 1e6, median(added), added[TURNS / 4], added[-1 - (TURNS / 4)])
    end
    <<~MARKDOWN
      ## Whole programs

      CPU time of the process for one unit of its work (a parcel, a document). In one process,
      #{TURNS} turns without the tool alternate with #{TURNS} turns with it; each turn takes
      #{TURN_CPU_SECONDS} s of CPU time. "Without" and "with" are medians. "Added" is the median of
      what a turn with the tool added to the turn before it, and the last column is the middle half
      of these differences.

      | | without | with | added | middle half |
      |---|---|---|---|---|
      #{lines.join("\n")}
    MARKDOWN
  end

  # Returns [[CPU seconds a unit without, with], ...].
  def turns(program)
    target = program_target(program)
    target.ready
    turn(target, program) # warm-up
    Array.new(TURNS) do
      without = turn(target, program)
      program.peer ? peer(target, "start", program.peer) : tracer = trace(target, program)
      with = turn(target, program)
      program.peer ? peer(target, "stop", program.peer) : untrace(tracer, target, program)
      [without, with]
    end
  ensure
    target&.kill_all
  end

  # A program under a peer runs without probescope and with Bundler's environment, which has the
  # peer.
  def program_target(program)
    script = File.join(Support::ROOT, "examples", program.script)
    return Support::Target.new(script, ruby: @ruby) unless program.peer

    options = ["-r#{File.join(__dir__, "toggle")}"]
    Support::Target.new(script, loaded: false, ruby: @ruby, options: options, env: ENV.to_h, stdin: true)
  end

  def peer(target, command, name)
    answers = -> { target.out.scan(/^peer #{command}$/).size }
    before = answers.call
    target.puts("#{command} #{name}")
    await("#{command} of #{name}", within: 60) { answers.call > before }
  end

  def trace(target, program)
    text = program.probes.map { |probe| "usdt:*:probescope:#{probe} #{STATS}" }.join("\n")
    Support::Tracer.new(text, pid: target.pid).tap { |tracer| tracer.attached(target, *program.probes) }
  end

  def untrace(tracer, target, program)
    tracer.stop(:INT)
    target.await_off(*program.probes)
  end

  # Returns the rows without peers that cannot be installed on this Ruby.
  def available(rows)
    @libraries ||= Hash.new do |known, peer|
      libraries = { "ruby_prof" => "ruby-prof", "vernier" => "vernier", "allocation_tracing" => "objspace" }
      library = libraries.fetch(peer, "stackprof")
      known[peer] = system(@ruby, "-e", "require #{library.inspect}", err: File::NULL)
    end
    rows.select { |row| row.peer.nil? || row.peer.start_with?("tracepoint") || @libraries[row.peer] }
  end

  # Returns the CPU seconds a unit over some time, from the program's own counters.
  def turn(target, program)
    units, cpu = counters(target, program)
    later = await("a turn of #{program.script}", within: 120, every: 0.1) do
      now = counters(target, program)
      now if now[1] - cpu > TURN_CPU_SECONDS
    end
    (later[1] - cpu) / (later[0] - units)
  end

  # Returns [units, CPU seconds] so far, as the program prints them on SIGUSR1.
  def counters(target, program)
    printed = target.out.scan(/cpu=\S+s/).size
    target.signal(:USR1)
    await("counters of #{program.script}") { target.out.scan(/cpu=\S+s wall/).size > printed }
    line = target.out.lines.reverse.find { |text| text.include?("cpu=") }
    [line[/#{program.unit}=(\d+)/, 1].to_i, line[/cpu=([\d.]+)/, 1].to_f]
  end

  def ns(value) = format(value.abs < 20 ? "%.1f" : "%.0f", value)

  # A peer is loaded from the bundle, so its process runs with Bundler's environment.
  def with_subject(loaded: true)
    env = { "RUBYOPT" => "-W0 #{ENV.fetch("RUBYOPT", "")}", "PROBESCOPE_FUNCTIONS" => "all" }
    subject = Support::Target.new(File.join(__dir__, "subject.rb"),
                                  loaded: loaded, ruby: @ruby, env: ENV.to_h.merge(env), stdin: true)
    subject.ready
    yield subject
  ensure
    subject&.kill_all
  end

  def with_tracer(subject, row)
    program = row.program ? File.join(Support::ROOT, "providers", row.program) : action(row)
    tracer = Support::Tracer.new(program, pid: subject.pid)
    await("the hooks of #{row.label}") do
      spin(subject) && row.probes.all? { |probe| subject.info.state(probe) == :on }
    end
    yield
  ensure
    tracer&.stop(:INT)
    await("the hooks out") { spin(subject) && row.probes.all? { |probe| subject.info.state(probe) == :off } }
  end

  def action(row) = row.probes.map { |probe| "usdt:*:probescope:#{probe} #{row.action}" }.join("\n")

  def spin(subject) = ask(subject, "spin", /^ok/)

  def with_peer(subject, peer)
    ask(subject, "start #{peer}", /^ok/)
    yield
  ensure
    ask(subject, "stop #{peer}", /^ok/)
  end

  def measure(subject, work) = ask(subject, "measure #{work}", /^ns (\S+)/)[1].to_f

  # Sends one command and waits for its answer.
  def ask(subject, command, pattern)
    answered = subject.out.lines.size
    subject.puts(command)
    await("an answer to #{command}", within: 120) do
      subject.out.lines[answered]&.then do |line|
        line.end_with?("\n") && line.match(pattern)
      end
    end
  end
end

if $PROGRAM_NAME == __FILE__
  ARGV.empty? ? Overhead.new.write : Overhead.new.show(ARGV)
end
