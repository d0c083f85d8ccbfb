# frozen_string_literal: true

# Measures functions by self time in a running application, with probescope and with other
# profilers, in turns on the same process:
#
#   sudo bundle exec ruby bench/beside.rb -p PID --rbspy /path/to/rbspy
#   sudo bundle exec ruby bench/beside.rb -p PID --py-spy /path/to/py-spy
#   sudo bundle exec ruby bench/beside.rb -p PID --stackprof --vernier
#     # started with RUBYOPT=-r/path/to/bench/beside_app BESIDE=DIRECTORY
#
# Prints a table in Markdown with the functions that come first for any of the tools. Time in C
# belongs to the function that called it, which every tool can report. Functions are matched by
# their last name and the end of their path, because profilers write both differently.
require "json"
require "open3"
require "optparse"
require "tmpdir"

module Beside
  module_function

  def key(function, path) = [function[/[^#.:]+\z/] || function, path.to_s.split("/").last(2).join("/")]

  # Returns self shares from stacks of one line each, with the innermost frame last and then the
  # count.
  def collapsed(text, &key_of)
    found = Hash.new(0)
    text.each_line do |line|
      stack, count = line.strip.match(/\A(.*) (\d+)\z/)&.captures
      leaf = stack && stack.split(";").filter_map(&key_of).last
      found[leaf] += count.to_i if leaf
    end
    shares(found)
  end

  def shares(found)
    all = found.values.sum.to_f
    found.transform_values { |count| count / all }
  end

  def probescope(pid, seconds)
    text, errors, status = Open3.capture3(RbConfig.ruby, "exe/probescope", "hot", "-p", pid,
                                          "-d", seconds.to_s, "--by", "self", "--json")
    raise errors unless status.success?

    JSON.parse(text).fetch("rows").each_with_object(Hash.new(0)) do |row, found|
      found[key(row["function"], row["file"])] += row["self_share"]
    end
  end

  def rbspy(path, pid, seconds)
    run(path, "record", "--pid", pid, "--duration", seconds.to_s, "--rate", "99",
        "--format", "collapsed", "--silent", "--file") do |text|
      collapsed(text) do |frame|
        name, place = frame.split(" - ", 2)
        key(name, place.sub(/:\d+\z/, "")) unless name.end_with?("[c function]")
      end
    end
  end

  def py_spy(path, pid, seconds)
    run(path, "record", "--pid", pid, "--duration", seconds.to_s, "--rate", "99",
        "--format", "raw", "--output") do |text|
      collapsed(text) { |frame| key(*frame.match(/\A(.*?)(?: \((.*?)(?::\d+)?\))?\z/).captures) }
    end
  end

  def run(*command)
    Dir.mktmpdir do |folder|
      text, status = Open3.capture2e(*command, "#{folder}/out")
      raise text unless status.success?

      yield File.read("#{folder}/out")
    end
  end

  # Uses the profilers inside the application: see bench/beside_app.rb.
  def inside(folder, seconds, start: "start", stop: "stop")
    File.write("#{folder}/control", "#{start}\n")
    sleep seconds
    File.write("#{folder}/control", "#{stop}\n")
    leaves = JSON.parse(File.read("#{folder}/result"))
    counts = leaves.each_with_object(Hash.new(0)) do |(function, path, count), found|
      found[key(function, path)] += count
    end
    shares(counts)
  end

  # profilers: a function for each name that measures its shares. Returns the mean of the turns, by
  # name and function.
  def turns(profilers, number)
    taken = Hash.new { |hash, name| hash[name] = [] }
    number.times { profilers.each { |name, take| taken[name] << take.call } }
    taken.transform_values do |turns|
      turns.flat_map(&:keys).uniq.to_h do |function|
        [function, turns.sum { |turn| turn[function] || 0 } / turns.size]
      end
    end
  end

  def table(found, rows)
    first = found.values.flat_map { |shares| shares.max_by(rows) { |_, share| share }.map(&:first) }.uniq
    sorted = first.sort_by { |function| -found.values.first.fetch(function, 0) }
    lines = sorted.map do |function|
      "| #{function.join(" | ")} | #{found.values.map { |all| percent(all[function]) }.join(" | ")} |"
    end
    ["| FUNCTION | FILE | #{found.keys.join(" | ")} |", "|---|---|#{"---|" * found.size}", *lines]
  end

  def percent(share) = share ? format("%.1f %%", share * 100) : "-"
end

options = { turns: 4, seconds: 20, rows: 8 }
others = {}
OptionParser.new do |parser|
  parser.banner = "bench/beside.rb -p PID [--rbspy PATH] [--py-spy PATH] [--stackprof] [--vernier]"
  parser.on("-p PID") { |pid| options[:pid] = pid }
  parser.on("--rbspy PATH") do |path|
    others["rbspy"] = -> { Beside.rbspy(path, options[:pid], options[:seconds]) }
  end
  parser.on("--py-spy PATH") do |path|
    others["py-spy"] = -> { Beside.py_spy(path, options[:pid], options[:seconds]) }
  end
  parser.on("--stackprof", "BESIDE: see above") do
    others["stackprof"] = -> { Beside.inside(ENV.fetch("BESIDE"), options[:seconds]) }
  end
  parser.on("--vernier", "BESIDE: see above") do
    others["Vernier"] = lambda do
      Beside.inside(ENV.fetch("BESIDE"), options[:seconds], start: "start vernier", stop: "stop vernier")
    end
  end
  parser.on("--turns NUMBER", Integer) { |number| options[:turns] = number }
  parser.on("--seconds NUMBER", Integer) { |number| options[:seconds] = number }
  parser.on("--rows NUMBER", Integer, "the first of each profiler") { |number| options[:rows] = number }
end.parse!
abort "which process? bench/beside.rb --help" unless options[:pid]

profilers = { "`hot`" => -> { Beside.probescope(options[:pid], options[:seconds]) } }.merge(others)
puts Beside.table(Beside.turns(profilers, options[:turns]), options[:rows])
