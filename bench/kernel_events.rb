# frozen_string_literal: true

# Measures what one event of the kernel costs under the commands that listen to the kernel, and under
# other tools: a system call, a page fault, a handover of a lock, a call of malloc. In the traced
# process, and in another one, without probescope. Rewrites its section of docs/performance.md.
#
#   bundle exec rake bench:kernel                             # this and bench/kernel_web.rb, as root
#   PASSES=1 ROUNDS=20 ROWS=syscalls bundle exec ruby bench/kernel_events.rb   # these rows, only printed
#
# bench/kernel/subject.py makes the events, in short rounds. The tenth percentile of the rounds counts,
# because the machine may have other work. Both processes take turns, before, under and after each
# tool. What a tool adds is the difference from the mean of before and after. A figure is the median
# of the passes; every other pass has the opposite order.
require "etc"
require "fileutils"
%w[paths await elf info child python target].each { |name| require_relative "../spec/support/#{name}" }
require_relative "kernel_tool"
require_relative "performance_page"
require_relative "statistics"

class KernelEvents
  include Support::Await
  include Statistics

  PASSES = Integer(ENV.fetch("PASSES", "3"))
  ROUNDS = Integer(ENV.fetch("ROUNDS", "250"))
  SUBJECT = File.join(__dir__, "kernel/subject.py")
  RAW = File.join(Support::ROOT, "tmp/bench-kernel-events.json")

  # Which function of the subject makes the events of a work, and how they are called.
  WORKS = {"getppid" => "One system call (`getppid`)", "read" => "One `read` of a byte of /dev/zero",
           "page_fault" => "One page fault",
           "handover" => "A lock handed to another thread and back, on one CPU",
           "malloc" => "One `malloc` of 800 bytes, and `free`"}.freeze
  FUNCTIONS = WORKS.keys.to_h { |work| [work, [work]] }.merge("handover" => %w[handover answer]).freeze
  # {tool => what its rows count}
  COUNTED = {KernelTool::SYSCALLS => "calls", KernelTool::OFFCPU => "times",
             KernelTool::WAITS => "waits"}.freeze

  THREADS = %w[getppid read handover].freeze
  ON = {"tracepoint:raw_syscalls:sys_enter" => THREADS, "tracepoint:sched:sched_switch" => %w[handover],
        "tracepoint:sched:sched_waking" => %w[handover], "software:page-faults" => %w[page_fault],
        "uprobe:libc.so.6:malloc" => %w[malloc]}.freeze
  # {tool => works that it makes more expensive}. Hooks see calls of C functions, too.
  TOOLS = {KernelTool::CALLS => WORKS.keys, KernelTool::SYSCALLS => THREADS, KernelTool::OFFCPU => THREADS,
           KernelTool::WAITS => THREADS, **ON.transform_keys { |event| KernelTool.on(event) },
           KernelTool::STRACE => THREADS, KernelTool::PERF => THREADS,
           **KernelTool::OFFCPUTIMES.to_h { |tool| [tool, %w[handover]] }}.freeze
  WANTED = ENV.fetch("ROWS", "")

  # ns of CPU time and of wall time for a unit. units: in all rounds.
  Figure = Struct.new(:units, :cpu, :wall)
  # What a tool adds in the traced process, and in another one; how many events the tool counted for
  # a unit.
  Added = Struct.new(:cpu, :wall, :other, :counted)

  def section
    loads = [File.read("/proc/loadavg").split.first]
    @plain = Hash.new { |hash, work| hash[work] = [] }
    @added = Hash.new { |hash, key| hash[key] = [] }
    PASSES.times do |pass|
      warn "bench: events of the kernel, pass #{pass + 1} of #{PASSES} ..."
      pass(pass.odd? ? tools.to_a.reverse : tools.to_a)
    end
    loads << File.read("/proc/loadavg").split.first
    FileUtils.mkdir_p(File.dirname(RAW))
    File.write(RAW, JSON.generate(@added.map { |key, all| [*key, all.map(&:to_h)] }))
    text(loads)
  end

  private

  def tools = TOOLS.select { |tool, _| tool.label.match?(WANTED) }

  def pass(tools)
    @subjects = {traced: subject(true), other: subject(false)}
    before = measure(WORKS.keys)
    before[:other].each { |work, figure| @plain[work] << figure }
    tools.each do |tool, works|
      during = KernelTool.with(tool, [traced.pid], states) do |children|
        spin
        [measure(works), children]
      end
      spin
      next unless during

      after = measure(WORKS.keys)
      during, children = during
      works.each do |work|
        counted = counted(tool, work, children.first.out, during[:traced][work].units)
        @added[[tool.label, work]] << added(work, during, [before, after], counted)
      end
      before = after
    end
  ensure
    @subjects&.each_value(&:kill_all)
  end

  def traced = @subjects[:traced]

  def subject(loaded)
    Support::Target.new(SUBJECT, loaded: loaded, stdin: true, env: {"ROUNDS" => ROUNDS.to_s}).ready
  end

  # A thread that waits for a command installs no hooks.
  def states
    lambda do |probe|
      spin
      [traced.info.state(probe)]
    end
  end

  def spin = @subjects.each_value { |one| ask(one, "spin") }

  # Returns {traced: {work => Figure}, other: {work => Figure}}.
  def measure(works)
    found = @subjects.transform_values { {} }
    works.each do |work|
      @subjects.each do |of, subject|
        found[of][work] = Figure.new(*ask(subject, "measure #{work}").split.map(&:to_f))
      end
    end
    found
  end

  # Sends one command and returns its answer.
  def ask(subject, command)
    answered = subject.out.lines.size
    subject.puts(command)
    line = await("an answer to #{command}", within: 300) do
      raise subject.to_s unless subject.alive?

      subject.out.lines[answered]&.then { |text| text if text.end_with?("\n") }
    end
    line.split(": ", 2).last
  end

  def added(work, during, references, counted)
    cpu, wall = %i[cpu wall].map { |value| more(during, references, :traced, work, value) }
    Added.new(cpu, wall, more(during, references, :other, work, :cpu), counted)
  end

  def more(during, references, of, work, value)
    before, after = references.map { |one| one[of][work][value] }
    during[of][work][value] - ((before + after) / 2)
  end

  # How many events of a unit a command that counts them has in its rows. out: its JSON.
  def counted(tool, work, out, units)
    field = COUNTED.fetch(tool) { "events" if ON.key?(tool.arguments[1]) }
    return unless field

    rows = JSON.parse(out).fetch("rows").select { |row| FUNCTIONS.fetch(work).include?(row["function"]) }
    rows.sum { |row| row[field] } / units
  end

  def text(loads)
    tables = WORKS.map { |work, title| table(work, title) if @plain.key?(work) }.compact
    <<~MARKDOWN
      <!-- bench/kernel_events.rb -->
      ## One event of the kernel

      #{`uname -srm`.strip}, #{Etc.nprocessors} CPUs, #{`bpftrace --version`.strip}, CPython
      #{Support::Python.full_version}; load average #{loads.join(" at the start, ")} at the end.
      Figures are ns for one unit of the work: what the tool adds to the CPU time of the traced
      process, to its wall time, and to the CPU time of another process, without probescope. A turn
      is the tenth percentile of #{ROUNDS} rounds. "Added" is the difference between a turn with the
      tool and the mean of those before and after. A figure is the median of #{PASSES} passes,
      with the least and the most. "Counted" is how many events of a unit the command has in its
      table. `calls` shows the cost of the hooks alone, which the other commands of probescope have,
      too. Written by `rake bench:kernel`.

      #{tables.join("\n")}#{refused}
      <!-- end of bench/kernel_events.rb -->
    MARKDOWN
  end

  def table(work, title)
    plain = @plain[work]
    lines = tools.filter_map do |tool, works|
      rows = @added[[tool.label, work]] if works.include?(work)
      row(tool, rows) if rows&.any?
    end
    <<~MARKDOWN
      ### #{title}

      | | CPU time, added | wall time, added | another process, added | counted |
      |---|---|---|---|---|
      | without a tracer | #{ns(median(plain.map(&:cpu)))} | #{ns(median(plain.map(&:wall)))} | | |
      #{lines.join("\n")}
    MARKDOWN
  end

  def row(tool, rows)
    added = %i[cpu wall other].map { |value| spread(rows.map(&value)) }
    counted = median(rows.map(&:counted)).then { |number| format("%.2f", number) } if rows.all?(&:counted)
    "| #{tool.label} | #{added.join(" | ")} | #{counted} |"
  end

  # The median, and the least and the most if there are several.
  def spread(values)
    middle = median(values)
    text = "#{"+" if middle >= 0}#{ns(middle)}"
    values.size > 1 ? "#{text} (#{values.minmax.map { |value| ns(value) }.join(" to ")})" : text
  end

  def ns(value) = format(value.abs < 20 ? "%.1f" : "%.0f", value)

  def refused
    return if KernelTool.refused.empty?

    "\nNot measured: #{KernelTool.refused.map { |label, why| "#{label} (#{why})" }.join("; ")}.\n"
  end
end

if $PROGRAM_NAME == __FILE__
  text = KernelEvents.new.section
  ENV["ROWS"] ? puts(text) : PerformancePage.write("bench/kernel_events.rb", text)
end
