# frozen_string_literal: true

# Measures how long hooks take to come in, in Ruby programs that hold or release the VM's lock in
# different ways. bench/attach.py does the same for Python.
#
#   bundle exec rake bench:hooks_in     # as root; CYCLES=100, ONLY="a CPU loop",
#                                       # BUSY=2: with this many processes in busy loops
#
# Measures from the moment when the watcher has seen the tracer (it looks every 50 ms) until the
# hooks are in. The column of this version goes into docs/performance.md.
require "etc"
require "fileutils"
require "rbconfig"
%w[paths await elf info child target bpf tracer attacher].each do |name|
  require_relative "../spec/support/#{name}"
end
require_relative "performance_page"

class HooksIn
  PROGRAMS = {
    "a CPU loop" => "always { work }",
    "8 CPU threads" => "beside(7) { work }\nalways { work }",
    "File.stat every 0.1 ms" => "always { spin(0.0001); File.stat('.') }",
    "File.stat every 2 ms" => "always { spin(0.002); File.stat('.') }",
    "sleeps of 0.1 ms" => "always { work; sleep 0.0001 }",
    "a parked main thread, 4 busy ones" => "beside(4) { work }\nsleep",
    "100 fibers that take turns" => <<~RUBY,
      fibers = Array.new(100) { Fiber.new { always { spin(0.0002); Fiber.yield } } }
      fibers.cycle { |fiber| fiber.resume; sleep 0.0005 }
    RUBY
    "50 threads, served once a second" => <<~RUBY,
      queue = Queue.new
      beside(50) { queue.pop; work }
      loop { sleep 1; queue << true }
    RUBY
    "a parked main thread, 5 workers, a request a second" => <<~RUBY
      queue = Queue.new
      beside(5) { queue.pop; work }
      Thread.new { loop { sleep 1; queue << true } }
      Thread.new { sleep }.join
    RUBY
  }.freeze
  BEGINNING = <<~RUBY
    def work = 1000.times { |i| i.to_s }
    def spin(seconds)
      over = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
      nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < over
    end
    def always = loop { yield }
    def beside(count, &body) = count.times { Thread.new { always(&body) } }
    $stdout.sync = true
    puts "ready"
  RUBY

  def initialize(cycles:, busy:, only:)
    @cycles = cycles
    @busy = busy
    @programs = only ? PROGRAMS.slice(*only) : PROGRAMS
    say = "print RUBY_VERSION, (' with YJIT' if defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?)"
    version = IO.popen([ENV.fetch("RUBY", RbConfig.ruby), "-e", say], &:read)
    @column = "#{version}#{", #{busy} processes spin" if busy.positive?}"
  end

  def write
    figures = beside_others { @programs.keys.to_h { |name| [name, shown(name)] } }
    columns = before.reject { |name, _| name.start_with?("#{@column}, load") }
    load = Integer(Float(File.read("/proc/loadavg").split[1]))
    columns["#{@column}, load #{load} (#{PerformancePage.date})"] = figures
    PerformancePage.write("bench/hooks_in.rb", section(columns.sort.to_h))
  end

  private

  def shown(name)
    times = measure(PROGRAMS.fetch(name)).sort
    line = times.values_at(times.size / 2, (times.size * 0.99).to_i, -1).map do |time|
      format(time < 100 ? "%.1f" : "%.0f", time)
    end.join(" / ")
    warn "bench: #{@column}: #{name}: #{line} ms, load #{File.read("/proc/loadavg").split.first}"
    line
  end

  def measure(source)
    program = Support::Target.new(BEGINNING + source, ruby: ENV.fetch("RUBY", RbConfig.ruby)).ready
    attacher = Support::Attacher.new(program, "exception__stats", cycles: @cycles, wait: true)
    attacher.finish(within: 1800).map { |cycle| cycle.fetch(:switch_ms) }
  ensure
    attacher&.kill_all
    program&.kill_all
  end

  def beside_others
    pids = Array.new(@busy) { Process.spawn(RbConfig.ruby, "-e", "loop {}") }
    yield
  ensure
    pids&.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
  end

  # Returns {column => {program => figures}} of the present page.
  def before
    table = PerformancePage.section("bench/hooks_in.rb").lines.grep(/^\|/)
    head, _, *rows = table.map { |line| line.split("|")[1..-2].map(&:strip) }
    return {} unless head

    head.drop(1).each_with_index.to_h { |name, i| [name, rows.to_h { |row| [row[0], row[i + 1]] }] }
  end

  def section(columns)
    names = PROGRAMS.keys & columns.values.flat_map(&:keys)
    rows = names.map do |name|
      "| #{name} | #{columns.values.map { |figures| figures[name] }.join(" | ")} |"
    end
    <<~MARKDOWN
      <!-- bench/hooks_in.rb -->
      ## Hooks of Ruby programs that are busy, or wait

      #{PerformancePage.dated_line("bench/hooks_in.rb", "columns")}

      The time until hooks are installed, as in the table above, but in Ruby programs. Each program is a
      process of its own. A cell has the median / 99th percentile / longest of #{@cycles} attaches,
      in ms (`rake bench:hooks_in`).

      | | #{columns.keys.join(" | ")} |
      |---#{"|---" * columns.size}|
      #{rows.join("\n")}

      #{Etc.nprocessors} CPUs, #{RbConfig::CONFIG["host_cpu"]}; each column gives the load average
      during its measurement.
      <!-- end of bench/hooks_in.rb -->
    MARKDOWN
  end
end

if $PROGRAM_NAME == __FILE__
  HooksIn.new(cycles: Integer(ENV.fetch("CYCLES", "200")), busy: Integer(ENV.fetch("BUSY", "0")),
              only: ENV["ONLY"]&.split(";")).write
end
