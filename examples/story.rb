# frozen_string_literal: true

# bin/demo runs this in Ruby and, with DEMO_PYTHON, in Python. It starts each example, runs the real
# command on it, then starts the fixed one, and prints how much less CPU the work takes. In the end it
# records a program and its fix, and writes a page that compares both. With the word `waits` it tells
# of a lock and of system calls that fail: it names the row of the answer that has the reason, and
# prints what the fixed program does better.
require "fileutils"
require "open3"
require "rbconfig"

# A running example and its cost.
class Example
  RUN = [RbConfig.ruby, File.expand_path("../exe/probescope", __dir__)].freeze
  # Name and interpreter for each suffix of a program.
  INTERPRETERS = { ".rb" => ["ruby", RbConfig.ruby], ".py" => ["python3", ENV["DEMO_PYTHON"]] }.freeze

  attr_reader :pid

  def initialize(script, *options)
    name, interpreter = INTERPRETERS.fetch(File.extname(script))
    puts "$ probescope run -- #{name} examples/#{[script, *options].join(" ")} &"
    @reader, writer = IO.pipe
    @pid = Process.spawn(*RUN, "run", "--", interpreter, File.join(__dir__, script), *options, out: writer)
    writer.close
    line_with("ready")
  end

  # Runs the command, which attaches bpftrace to the running process, and shows its answer. Returns
  # the rows of the table, each {"MEAN" => "16.3 ms", ...}. A cell or a column without a value is "-".
  def ask(command, *more)
    options = ["-p", @pid.to_s, "-d", "3", *more]
    puts "$ probescope #{[command, *options].join(" ")}"
    answer = IO.popen([*RUN, command, *options]) do |output|
      output.each_line.map { |line| line.tap { puts line } }
    end
    Process.last_status.success? or abort "demo: the command failed"
    puts
    table = answer.drop_while { |line| !line.strip.empty? }.drop(1).take_while { |line| !line.strip.empty? }
    headings, *rows = table.map { |line| line.strip.split(/ {2,}/) }
    rows.map { |cells| Hash.new("-").merge!(headings.zip(cells).to_h) }
  end

  # Records the process into the file, beside what else runs. Returns a thread, whose value is the last
  # line that the command prints.
  def record(path)
    command = ["record", "-p", @pid.to_s, "-d", "15", "--force", "-o", path]
    puts "$ probescope #{command.join(" ")} &"
    Thread.new do
      output, status = Open3.capture2e(*RUN, *command)
      status.success? or abort "demo: the recording failed: #{output}"
      output.lines.last
    end
  end

  # Seconds of its life and units of work so far.
  def counted
    now = counters
    [now["wall"], now.values.first]
  end

  # Units of work in a second, since it counted that.
  def rate_since(counted)
    seconds, units = self.counted.zip(counted).map { |now, then_| now - then_ }
    units / seconds
  end

  # Microseconds of CPU for one unit of work, over two seconds without a tracer: the kernel's CPU
  # time of the process, divided by the program's own count.
  def cpu_per_unit
    figures = two_seconds
    figures["cpu"] * 1e6 / figures.first.last
  end

  # What the program counts in two seconds without a tracer: {"orders" => 312.0, "wall" => 2.0, ...}.
  # The CPU seconds are the kernel's.
  def two_seconds
    first, cpu = counters, cpu_seconds
    sleep 2
    {**counters.to_h { |name, value| [name, value - first[name]] }, "cpu" => cpu_seconds - cpu}
  end

  def stop
    Process.kill(:TERM, @pid)
    Process.wait(@pid)
  end

  private

  # The counters that the program prints on SIGUSR1. The first one is that of its units of work, such
  # as documents.
  def counters
    Process.kill(:USR1, @pid)
    line_with("=").scan(/(\w+)=([\d.]+)/).to_h.transform_values(&:to_f)
  end

  # utime and stime, the 14th and 15th field (proc(5)), in ticks of 10 ms.
  def cpu_seconds
    File.read("/proc/#{@pid}/stat").rpartition(")").last.split.values_at(11, 12).sum(&:to_i) / 100.0
  end

  def line_with(text)
    while (line = @reader.gets)
      return line if line.include?(text)
    end
    abort "demo: the example ended"
  end
end

# Where the recordings and the pages are.
PAGES = "tmp/demo"

# Returns the microseconds of CPU for one unit of work.
def measure(script, command, *options)
  example = Example.new(script, *options)
  cost = example.cpu_per_unit
  example.ask(command, "--top", "5")
  cost
ensure
  example&.stop
end

def tell(title, script, command, unit)
  puts "== #{title}", ""
  before = measure(script, command)
  after = measure(script, command, "--fixed")
  puts format("CPU for one %<unit>s: %<before>.0f us before, %<after>.0f us with the fix: %<drop>.0f %% less",
              unit: unit, before: before, after: after, drop: (1 - (after / before)) * 100), ""
  before
end

# Records the parcel service and its fix while both do the same work in a second, and compares the
# recordings. Returns the page.
def compare(title, script, language, rate)
  examples = []
  puts "== #{title}", ""
  FileUtils.mkdir_p(PAGES)
  files = %w[before after].map { |which| "#{PAGES}/#{language}-#{which}.pb.gz" }
  [[], ["--fixed"]].each { |fix| examples << Example.new(script, "--rate", rate.to_s, *fix) }
  first = examples.map(&:counted)
  puts examples.zip(files).map { |example, file| example.record(file) }.map(&:value)
  work = examples.zip(first).map { |example, counted| example.rate_since(counted) }
  puts format("parcels in a second: %.0f before, %.0f after", *work), ""
  page = "#{PAGES}/#{language}.html"
  [[], ["--force", "-o", page]].each { |options| show("diff", *files, *options) }
  page
ensure
  examples.each(&:stop)
end

# Runs a command that needs no process.
def show(*command)
  puts "$ probescope #{command.join(" ")}"
  system(*Example::RUN, *command) or abort "demo: the command failed"
  puts
end

# The program does so many units a second in 0.4 s of CPU time.
def rate(cost) = (400_000 / cost).round

# How the row that has the reason is found, what it says, and what the program counts for a user.
WAITS = {
  command: %w[waits --top 5],
  row: :first.to_proc,
  says: lambda do |row|
    "#{row["FUNCTION"]} waits #{row["BLOCKED"]} in all threads, for: #{row["WAITS FOR"]}." \
      "#{" Most of that is ended by #{row["ENDED BY"]}." unless row["ENDED BY"] == "-"}"
  end,
  nothing: "No thread waits.",
  line: "ENDED BY",
  gains: {"orders a second" => ->(n) { n["orders"] / n["wall"] },
          "waits for the lock, for each order" => ->(n) { n["ship_waits"] / n["orders"] },
          "ms in these waits, for each order" => ->(n) { n["ship_waited"] * 1e3 / n["orders"] }}
}.freeze
FAILED = {
  command: %w[syscalls --failed --top 0],
  row: ->(rows) { rows.find { |row| row["CALL"].start_with?("mkdir") } },
  says: ->(row) { "#{row["FUNCTION"]} calls #{row["CALL"]}, and it fails: #{row["FAILED"]}." },
  nothing: "No call that makes a folder fails.",
  line: "DEFINED AT",
  gains: {"us of CPU for each record" => ->(n) { n["cpu"] * 1e6 / n["records"] },
          "calls of mkdir for each record" => ->(n) { n["mkdirs"] / n["records"] }}
}.freeze

# Returns what the program counts.
def look(script, about, *options)
  example = Example.new(script, *options)
  counted = example.two_seconds
  row = about[:row].call(example.ask(*about[:command]))
  puts row ? about[:says].call(row) : about[:nothing]
  place = row && row[about[:line]].match(/(?:.* at )?(.+):(\d+)/)
  puts "#{place[1]}:#{place[2]}:  #{File.readlines(place[1])[place[2].to_i - 1].strip}" if place
  puts
  counted
ensure
  example&.stop
end

def tell_waits(title, script, about)
  puts "== #{title}", ""
  both = [look(script, about), look(script, about, "--fixed")]
  puts format("%-36s %10s %10s", "", "before", "fixed")
  about[:gains].each do |name, figure|
    puts format("%-36s %10.2f %10.2f", name, *both.map { |counted| figure.call(counted) })
  end
  puts
end

$stdout.sync = true
if ARGV == ["waits"]
  tell_waits "Orders are slow, and the CPU is idle", "onelock.rb", WAITS
  tell_waits "An archive uses too much CPU, and no log has an error", "mkdir.rb", FAILED
  exit unless ENV["DEMO_PYTHON"]
  tell_waits "In Python: orders are slow, and the CPU is idle", "onelock.py", WAITS
  tell_waits "In Python: an archive uses too much CPU, and no log has an error", "mkdir.py", FAILED
  exit
end
tell "A parser is slow, and no log says why", "deepstack.rb", "exceptions", "document"
cost = tell("A parcel service is slow, and its code looks fine", "hotfuncs.rb", "hot", "parcel")
pages = [compare("The parcel service before and after", "hotfuncs.rb", "ruby", rate(cost))]
if ENV["DEMO_PYTHON"]
  tell "In Python: a parser is slow, and its log is full of what nobody reads",
       "deepstack.py", "exceptions", "document"
  cost = tell("In Python: a parcel service is slow, and its code looks fine", "hotfuncs.py", "hot", "parcel")
  pages << compare("In Python: the parcel service before and after", "hotfuncs.py", "python", rate(cost))
end
puts "These pages show what the fixes have changed, as flame graphs. Open them in a browser:"
pages.each { |page| puts "  #{File.expand_path(page)}" }
