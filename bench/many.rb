# frozen_string_literal: true

# The program that bench/attach.rb traces. It has many files and methods, all in use. Arguments:
# FILES METHODS_EACH [later]. With "later" it loads probescope after its files. It reads its
# thread's CPU clock about every 20 us. On a line on stdin it prints the longest step since the last
# line, in ms of CPU (which other processes do not lengthen) and of wall time, and the number of
# garbage collections.
files, methods, later = ARGV
$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "probescope/auto" unless later

ENV.fetch("PROBESCOPE_ROOT").then do |directory|
  Array.new(Integer(files)) do |n|
    bodies = Array.new(Integer(methods)) do |m|
      "  def m#{m}(x)\n    y = x + #{m}\n    y.odd? ? y : y + 1\n  end\n"
    end
    path = File.join(directory, "file#{n}.rb")
    File.write(path, "class File#{n}\n#{bodies.join("\n")}end\n")
    require path
  end
end
require "probescope/auto" if later

calls = Array.new(Integer(files)) do |n|
  object = Object.const_get("File#{n}").new
  Array.new(Integer(methods)) { |m| object.method(:"m#{m}").to_proc }
end.flatten
40.times { calls.each { |call| call.call(1) } } # until a JIT has compiled them
ballast = Array.new(100_000) { |n| "object #{n}" } # objects for the walk over the heap

cpu = -> { Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :float_millisecond) }
wall = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond) }
longest = longest_wall = in_it = 0.0
collecting = -> { GC.total_time / 1e6 }
collections = GC.count
last_collecting = collecting.call
last = cpu.call
last_wall = wall.call
puts "ready"
$stdout.flush
calls.each_slice(100).to_a.cycle do |slice|
  slice.each { |call| call.call(1) }
  now = cpu.call
  now_wall = wall.call
  now_collecting = collecting.call
  longest, in_it = now - last, now_collecting - last_collecting if now - last > longest
  longest_wall = now_wall - last_wall if now_wall - last_wall > longest_wall
  last = now
  last_collecting = now_collecting
  last_wall = now_wall
  if IO.select([$stdin], nil, nil, 0)
    exit unless $stdin.gets
    puts format("longest cpu=%.2f in-gc=%.2f wall=%.2f collections=%d",
                longest, in_it, longest_wall, GC.count - collections)
    $stdout.flush
    longest = longest_wall = in_it = 0.0
    collections = GC.count
    last = cpu.call
    last_wall = wall.call
  end
end
ballast.clear
