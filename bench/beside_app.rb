# frozen_string_literal: true

# An application loads this file. It turns stackprof or Vernier on and off on orders that
# bench/beside.rb writes into the FIFO $BESIDE/control. It writes the functions by self samples into
# the FIFO $BESIDE/result: a list of [function, path, count]. A sample in C belongs to the function
# that called it. Vernier samples by the wall clock; only samples of threads with the VM lock count.
require "json"
require "stackprof"
begin
  require "vernier"
rescue LoadError # it needs Ruby 3.2
  nil
end

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

vernier = lambda do |profile|
  found = Hash.new(0)
  table = profile.stack_table
  profile.threads.each_value do |thread|
    thread.values_at(:samples, :weights, :sample_categories).transpose.each do |stack, weight, category|
      next unless category.zero?

      functions = table.full_stack(stack).map { |id| table.frame_func_idx(table.stack_frame_idx(id)) }
      leaf = functions.find { |function| !table.func_filename(function).to_s.start_with?("<") }
      found[[table.func_name(leaf), table.func_filename(leaf)]] += weight if leaf
    end
  end
  found.map { |(name, path), count| [name, path, count] }
end

Thread.new do
  loop do
    case File.read(control)
    when "start vernier\n" then Vernier.start_profile(mode: :wall, interval: 10_000)
    when "stop vernier\n" then File.write(result, JSON.generate(vernier.call(Vernier.stop_profile)))
    when "start\n" then StackProf.start(mode: :cpu, interval: 10_000, raw: true)
    when "stop\n"
      StackProf.stop
      File.write(result, JSON.generate(leaves.call(StackProf.results)))
    end
  end
end
