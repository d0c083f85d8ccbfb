# frozen_string_literal: true

# Measures one fire of a run-time probe in C, without a tracer and under bpftrace. A static USDT,
# and upstream's libstapsdt if it is given, take turns with it in one process. Also measures an idle
# fire in Ruby and Python. Writes its section of docs/performance.md.
#
#   bundle exec rake bench:fire                                        # a few seconds, as root
#   LIBSTAPSDT=/path/to/libstapsdt.so.0 bundle exec rake bench:fire    # with upstream's
#   PYTHON=/path/to/python3 bundle exec rake bench:fire                # which imports probescope
require "fileutils"
require "open3"
%w[paths await elf info child target bpf tracer libstapsdt].each do |name|
  require_relative "../spec/support/#{name}"
end
require_relative "performance_page"

class Fire
  include Support::Await

  WAYS = {
    "static" => "a static USDT behind its semaphore",
    "ours" => "`probeFire()`",
    "ours.asked" => "`probeIsEnabled()`, then `probeFire()`",
    "upstream" => "`probeFire()` of libstapsdt",
    "upstream.asked" => "`probeIsEnabled()`, then `probeFire()` of libstapsdt"
  }.freeze
  COLUMNS = ["with arguments, ns", "with a block or lambda, ns",
             "an empty C function with a block or lambda, ns", "ratio of the last two"].freeze
  PROVIDERS = { "static" => "probescope", "ours" => "ours", "upstream" => "upstream" }.freeze

  def write
    PerformancePage.write("bench/fire.rb", section_of(*measure))
  end

  private

  def measure
    subject = Support::Child.new(program, *libraries, stdin: true)
    subject.await_line(/\Aready$/)
    idle = figures(subject, "idle")
    providers = PROVIDERS.reject { |way, _| way == "upstream" && !upstream }.values
    text = providers.map { |name| "usdt:*:#{name}:fired { @#{name} = count(); }" }.join("\n")
    tracer = Support::Tracer.new(text, pid: subject.pid)
    await("the tracer's probes", within: 60) { figures(subject, "once").values.min > 50 }
    [idle, figures(subject, "attached")]
  ensure
    tracer&.stop(:INT)
    subject&.kill_all
  end

  def figures(subject, state)
    done = subject.out.scan("done").size
    subject.puts(state)
    await("figures", within: 120) { subject.out.scan("done").size > done }
    subject.out.split("done\n").last.scan(/^(\S+) ([\d.]+)$/).to_h.transform_values(&:to_f)
  end

  # Returns [name, ns of a fire, with a block or lambda, of an empty C function with it] for each
  # language.
  def languages
    python = ENV.fetch("PYTHON", "python3")
    path = ["python", *ENV["PYTHONPATH"]].join(":")
    ask = "import platform; print(platform.python_version())"
    version = Support::LibStapsdt.tool(python, "-c", ask).strip
    [["Ruby #{RUBY_VERSION}, a block", RbConfig.ruby, "-Ilib", "bench/fire_block.rb"],
     ["CPython #{version}, a lambda", "env", "PYTHONPATH=#{path}", python, "bench/fire_lambda.py"]]
      .map { |name, *command| [name, *Support::LibStapsdt.tool(*command).split.map(&:to_f)] }
  end

  def upstream = ENV.fetch("LIBSTAPSDT", nil)
  def libraries = [File.join(Support::LibStapsdt::PREFIX, "lib/libstapsdt.so.0"), *upstream]

  def program
    Support::LibStapsdt.build
    File.join(Support::LibStapsdt::PREFIX, "fire").tap do |path|
      Support::LibStapsdt.tool("cc", "-std=gnu11", "-O2", "-mno-red-zone", "-Iext/core",
                               "-Iext/libstapsdt", "-o", path, "bench/fire.c", "-ldl")
    end
  end

  def language_rows
    languages.map do |name, plain, lazy, empty|
      format("| %s | %.0f | %.0f | %.0f | %.2f |\n", name, plain, lazy, empty, lazy / empty)
    end
  end

  def section_of(idle, attached)
    rows = idle.map do |way, ns|
      format("| %s | %.1f | %.0f | %.2f |\n",
             WAYS.fetch(way), ns, attached.fetch(way), attached.fetch(way) / attached.fetch("static"))
    end
    <<~MARKDOWN
      <!-- bench/fire.rb -->
      ## One fire of a run-time probe in C

      A fire has two integer arguments. All rows take turns in one process. "Attached" is under
      bpftrace #{Support::Bpf.version.join(".")}, which counts each fire (`count()`). Figures are
      medians of 501 turns (`bundle exec rake bench:fire`; with `LIBSTAPSDT` for the rows of
      libstapsdt; #{`uptime`[/load average.*/]}).

      | | idle, ns | attached, ns | attached, ratio to the static USDT |
      |---|---|---|---|
      #{rows.join}
      From Ruby and Python, without a tracer: `fire("a", i)`, and `fire` with a block or lambda that
      returns the two arguments. Without a tracer, the block or lambda is not called.

      | | #{COLUMNS.join(" | ")} |
      |---|---|---|---|---|
      #{language_rows.join}
      <!-- end of bench/fire.rb -->
    MARKDOWN
  end
end

Fire.new.write if $PROGRAM_NAME == __FILE__
