# frozen_string_literal: true

# Measures what the commands that listen to the kernel cost web applications under load, traced and
# beside a traced one: examples/rack_app and examples/flask_app. Rewrites its section of
# docs/performance.md.
#
#   bundle exec rake bench:kernel        # this and bench/kernel_events.rb, as root
#   PASSES=1 ROUNDS=2 REQUESTS=50 bundle exec ruby bench/kernel_web.rb   # a short run, which prints
#
# An application with probescope and one without it have turns of the same number of requests. A tool
# is attached to both workers of the first one. The kernel's events come from the whole machine, so
# the second one may pay for the tool, too, and each is compared with itself: the median of its turns
# with the tool is divided by the mean of the medians of the turns before and after. Each pass starts
# the applications anew and attaches all tools, every other pass in the opposite order. A ratio in the
# table is the geometric mean of the passes, with its standard error.
require "etc"
require "fileutils"
%w[paths await elf info child python rack_app flask_app].each do |name|
  require_relative "../spec/support/#{name}"
end
require_relative "kernel_tool"
require_relative "performance_page"
require_relative "web_turns"

class KernelWeb
  include Support::Await
  include WebTurns

  PASSES = Integer(ENV.fetch("PASSES", "3"))
  ROUNDS = Integer(ENV.fetch("ROUNDS", "4"))
  # Every turn is kept beside the page for a closer look.
  RAW = File.join(Support::ROOT, "tmp/bench-kernel-web.json")
  APPS = {"rack_app" => Support::RackApp, "flask_app" => Support::FlaskApp}.freeze
  TOOLS = [KernelTool::CALLS, KernelTool::SYSCALLS, KernelTool::OFFCPU, KernelTool::WAITS, KernelTool::GVL,
           KernelTool.on("tracepoint:raw_syscalls:sys_enter"), KernelTool.on("uprobe:libc.so.6:malloc"),
           KernelTool::STRACE, KernelTool::PERF, *KernelTool::OFFCPUTIMES].freeze
  WANTED = ENV.fetch("ROWS", "")

  def section
    loads = [File.read("/proc/loadavg").split.first]
    tables = APPS.map do |name, app|
      found = measure(name, app)
      "### `examples/#{name}`#{" (#{language(name)})"}\n\n#{table(found)}"
    end
    loads << File.read("/proc/loadavg").split.first
    FileUtils.mkdir_p(File.dirname(RAW))
    File.write(RAW, JSON.generate(@raw))
    text(tables, loads)
  end

  private

  # Returns {label => [{with: Turn, beside: Turn, ratios: ...}, ...]}, a figure for each pass.
  def measure(name, app)
    @raw ||= []
    @refused = KernelTool.refused.clear
    PASSES.times.with_object(Hash.new { |hash, label| hash[label] = [] }) do |pass, found|
      warn "bench: #{name}, pass #{pass + 1} of #{PASSES} ..."
      pass(app, pass.odd? ? tools.reverse : tools).each do |label, figures|
        @raw << {app: name, pass: pass, label: label, figures: figures}
        found[label] << figures
      end
    end
  end

  def tools = TOOLS.select { |tool| tool.label.match?(WANTED) }

  # Returns {label => {traced: [Turn, Turn of ratios], other: [...]}}
  def pass(app, tools)
    apps = {traced: app.new, other: app.new(env: {"WITHOUT_PROBESCOPE" => "1"})}
    apps.each_value { |one| 2.times { turn(one.ready) } } # warm-up
    before = medians(apps)
    idle = [before]
    found = tools.filter_map do |tool|
      during = KernelTool.with(tool, apps[:traced].workers, states(apps[:traced])) { medians(apps) }
      next unless during

      after = medians(apps)
      idle << after
      reference, before = [before, after], after
      [tool.label, during.to_h { |of, turn| [of, [turn, ratio(turn, reference.map { |one| one[of] })]] }]
    end
    {nil => idle(idle), **found.to_h}
  ensure
    apps&.each_value(&:kill_all)
  end

  # Without a tool: the application with probescope, compared with the one without it.
  def idle(found)
    traced, other = %i[traced other].map { |of| middle(found.map { |one| one[of] }) }
    {traced: [traced, ratio(traced, [other])], other: [other, nil]}
  end

  def medians(apps)
    found = rounds(apps, ROUNDS)
    apps.keys.to_h { |of| [of, middle(found.map { |round| round[of] })] }
  end

  def ratio(turn, references)
    Turn.new(*Turn.members.map { |value| turn[value] / (references.sum(&value) / references.size) })
  end

  # Hooks are switched when a worker wakes up.
  def states(app)
    lambda do |probe|
      app.get("/")
      app.workers.map { |pid| app.info(pid).state(probe) }
    end
  end

  def table(found)
    other = found[nil].map { |pass| pass[:other].first }.then { |turns| middle(turns) }
    lines = [format("| without probescope | %.0f | | %.3f ms | | |", other.per_second, other.cpu * 1000)]
    lines += found.map { |label, passes| row(label, passes) }
    <<~MARKDOWN
      | | requests/s | ratio | CPU time of a request | ratio | beside it: CPU time, ratio |
      |---|---|---|---|---|---|
      #{lines.join("\n")}
      #{refused}
    MARKDOWN
  end

  def row(label, passes)
    turn = middle(passes.map { |pass| pass[:traced].first })
    per_second, cpu = Turn.members.map do |value|
      geometric_mean(passes.map { |pass| pass[:traced].last[value] })
    end
    beside = geometric_mean(passes.map { |pass| pass[:other].last.cpu }) if label
    format("| %s | %.0f | %s | %.3f ms | %s | %s |",
           label || "loaded, no tracer", turn.per_second, per_second, turn.cpu * 1000, cpu, beside)
  end

  def refused
    return if @refused.empty?

    "\nNot measured: #{@refused.map { |label, why| "#{label} (#{why})" }.join("; ")}."
  end

  def language(name)
    name == "rack_app" ? "Ruby #{RUBY_VERSION}" : "CPython #{Support::Python.full_version}"
  end

  def text(tables, loads)
    <<~MARKDOWN
      <!-- bench/kernel_web.rb -->
      ## Commands that listen to the kernel, on web applications

      #{`uname -srm`.strip}, #{Etc.nprocessors} CPUs, #{`bpftrace --version`.strip}; load average
      #{loads.join(" at the start, ")} at the end. The load loop runs on the same CPUs, in turns of
      #{REQUESTS} requests. A tool is attached to both workers. Each row is compared with turns of the
      same application before and after, without a tool: the median of #{ROUNDS} turns is divided by
      the mean of their medians. A ratio is the geometric mean of #{PASSES} passes, with its standard
      error. "Loaded, no tracer" is compared with the row above. The last column is a second
      application, without probescope, whose turns are beside those of the traced one. CPU time is
      that of the workers; a tool's own is not in it. `calls` shows the cost of the hooks, which all
      commands of probescope have here. Written by `rake bench:kernel`.

      #{tables.join("\n")}
      <!-- end of bench/kernel_web.rb -->
    MARKDOWN
  end
end

if $PROGRAM_NAME == __FILE__
  text = KernelWeb.new.section
  ENV["ROWS"] ? puts(text) : PerformancePage.write("bench/kernel_web.rb", text)
end
