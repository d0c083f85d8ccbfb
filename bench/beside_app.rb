# frozen_string_literal: true

# Loaded into an application: turns stackprof on and off as bench/beside.rb says in the FIFO $BESIDE/control, and writes into the FIFO
# $BESIDE/result the functions by samples of their own: a list of [function, path, count]. A sample of C belongs to the function that
# called it.
require "json"
require "stackprof"

folder = ENV.fetch("BESIDE")
control, result = %w[control result].map { |name| File.join(folder, name) }
[control, result].each { |path| File.mkfifo(path) unless File.exist?(path) }

leaves = lambda do |profile|
  found = Hash.new(0)
  raw = profile[:raw]
  while (depth = raw.shift)
    stack = raw.shift(depth)
    frame = stack.reverse.map { |id| profile[:frames][id] }.find { |one| !one[:file].to_s.start_with?("<") }
    count = raw.shift
    found[frame.values_at(:name, :file)] += count if frame
  end
  found.map { |(name, path), count| [name, path, count] }
end

Thread.new do
  loop do
    case File.read(control)
    when "start\n" then StackProf.start(mode: :cpu, interval: 10_000, raw: true)
    when "stop\n"
      StackProf.stop
      File.write(result, JSON.generate(leaves.call(StackProf.results)))
    end
  end
end
