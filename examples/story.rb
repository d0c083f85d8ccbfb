# frozen_string_literal: true

# bin/demo runs this in Ruby and, with DEMO_PYTHON, in Python. It starts each example, runs the real
# command on it, then starts the fixed one, and prints how much less CPU the work takes.
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

  # Runs the command, which attaches bpftrace to the running process, and shows its answer.
  def ask(command)
    options = ["-p", @pid.to_s, "-d", "3", "--top", "5"]
    puts "$ probescope #{command} #{options.join(" ")}"
    system(*RUN, command, *options) or abort "demo: the command failed"
    puts
  end

  # Microseconds of CPU for one unit of work, over two seconds without a tracer: the kernel's CPU
  # time of the process, divided by the program's own count.
  def cpu_per_unit
    units, cpu = done, cpu_seconds
    sleep 2
    (cpu_seconds - cpu) * 1e6 / (done - units)
  end

  def stop
    Process.kill(:TERM, @pid)
    Process.wait(@pid)
  end

  private

  # Documents or parcels so far: the first of the counters that the program prints on SIGUSR1.
  def done
    Process.kill(:USR1, @pid)
    line_with("=")[/=(\d+)/, 1].to_i
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

def measure(script, command, *options)
  example = Example.new(script, *options)
  cost = example.cpu_per_unit
  example.ask(command)
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
end

$stdout.sync = true
tell "A parser is slow, and no log says why", "deepstack.rb", "exceptions", "document"
tell "A parcel service is slow, and its code looks fine", "hotfuncs.rb", "hot", "parcel"
exit unless ENV["DEMO_PYTHON"]
tell "In Python: a parser is slow, and its log is full of what nobody reads",
     "deepstack.py", "exceptions", "document"
tell "In Python: a parcel service is slow, and its code looks fine", "hotfuncs.py", "hot", "parcel"
