# frozen_string_literal: true

# Measures what a latency probe costs a method that does nothing: without a tracer, compared with a
# plain method and with a wrapper in C in the same run; under bpftrace; and after bpftrace has left.
# Writes its section of docs/performance.md.
#
#   bundle exec rake bench:latency     # half a minute, as root
#   RUBY=/path/to/ruby RUBY_OPTIONS=--yjit PYTHON="/path/python3 /path" \
#     bundle exec rake bench:latency   # these, too
require "fileutils"
%w[paths await elf info child target bpf tracer].each { |name| require_relative "../spec/support/#{name}" }
require_relative "performance_page"

class LatencyBench
  COLUMNS = ["plain", "with a probe", "factor", "behind a wrapper in C", "plain, attached",
             "with the probe, attached", "factor after detach"].freeze

  def write
    rows = subjects.map { |name, command| [name, *measure(*command)] }
    PerformancePage.write("bench/latency.rb", section_of(rows))
  end

  private

  # Returns {name => command}.
  def subjects
    rubies = [[RbConfig.ruby], [ENV.fetch("RUBY", nil), *ENV.fetch("RUBY_OPTIONS", "").split]]
    rubies = rubies.select(&:first).uniq.to_h do |ruby, *options|
      [["Ruby #{tell(ruby, "RUBY_VERSION")}", *options].join(" "), ruby_command(ruby, options)]
    end
    pythons = ENV.fetch("PYTHON", "python3").split
    rubies.merge(pythons.to_h { |python| ["CPython #{`#{python} -V`[/\S+$/]}", python_command(python)] })
  end

  def tell(ruby, source)
    IO.popen([{ "RUBYOPT" => nil }, ruby, "-rrbconfig", "-e", "print #{source}"], &:read)
  end

  def ruby_command(ruby, options)
    folder = File.join(Support::ROOT, "tmp/bench", tell(ruby, "RbConfig::CONFIG['ruby_version']"))
    FileUtils.mkdir_p(folder)
    headers = tell(ruby, "RbConfig::CONFIG.values_at('rubyhdrdir', 'rubyarchhdrdir').join(' ')").split
    system("cc", "-O2", "-shared", "-fPIC", *headers.map { |path| "-I#{path}" },
           "-o", "#{folder}/super.so", "bench/latency/super.c", chdir: Support::ROOT, exception: true)
    [ruby, *options, "-Ilib", "-I#{folder}", "bench/latency/methods.rb"]
  end

  def python_command(python)
    ["env", "PYTHONPATH=#{["python", *ENV["PYTHONPATH"]].join(":")}", python, "bench/latency/functions.py"]
  end

  # Returns [[plain, traced, wrapped], [plain, traced] attached, the same detached], in ns.
  def measure(*command)
    subject = Support::Child.new(*command, stdin: true)
    idle = figures(subject, "idle")
    probe = command.last.end_with?(".rb") ? "Shop.traced" : "traced"
    tracer = Support::Tracer.new(%(usdt:*:latency:"#{probe}" { @ns = hist(arg0); }), pid: subject.pid)
    subject.puts("attached")
    attached = figures(subject, "attached")
    tracer.stop(:INT)
    subject.puts("detached")
    [idle, attached, figures(subject, "detached")]
  ensure
    tracer&.kill_all
    subject&.kill_all
  end

  def figures(subject, state) = subject.await_line(/^#{state} (.*)/, within: 120)[1].split.map(&:to_f)

  def section_of(rows)
    rows = rows.map do |name, (plain, idle, wrapped), (beside, attached), (plain_after, after)|
      format("| %s | %.1f | %.1f | %.2f | %.1f | %.1f | %.0f | %.2f |\n",
             name, plain, idle, idle / plain, wrapped, beside, attached, after / plain_after)
    end
    <<~MARKDOWN
      <!-- bench/latency.rb -->
      ## A method with a latency probe

      Figures are ns of a call, in a loop, of a method that returns its argument. "Attached" is
      under bpftrace #{Support::Bpf.version.join(".")} with a histogram (`hist(arg0)`). The columns
      of a row take turns in one process; figures are medians of 501 turns (`bundle exec rake
      bench:latency`; #{`uptime`[/load average.*/].strip}). If the probe were a wrapper in C, a call
      would always cost what the column "behind a wrapper in C" shows.

      | | #{COLUMNS.join(" | ")} |
      |---|---|---|---|---|---|---|---|
      #{rows.join}<!-- end of bench/latency.rb -->
    MARKDOWN
  end
end

LatencyBench.new.write if $PROGRAM_NAME == __FILE__
