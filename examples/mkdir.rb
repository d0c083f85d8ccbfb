# frozen_string_literal: true

# An archive that makes the same folders again and again.
#
#   ruby examples/mkdir.rb            # makes the folders of each record
#   ruby examples/mkdir.rb --fixed    # remembers which folders it has made
#
# Each record goes into a folder of its day, in the folder of its station. The archive makes both
# folders, and rescues the error if they exist. So there is no race, no error in a log, and two
# system calls and two exceptions too many for each record. A tracer shows which function makes calls
# that fail, and with which error:
#
#   probescope run -- ruby examples/mkdir.rb
#   sudo probescope syscalls --failed -p PID
require "fileutils"
require "optparse"
require "tmpdir"

class Archive
  # Records stored, calls of mkdir, and how many of these said that the folder exists.
  attr_reader :records, :mkdirs, :existed

  def initialize(root)
    @root = root
    @records = @mkdirs = @existed = 0
  end

  def store(station, day, value)
    folder = make(make(@root, station), day)
    File.write(File.join(folder, "values.csv"), "#{@records},#{value}\n", mode: "a")
    @records += 1
  end

  # Returns the folder.
  def make(parent, name)
    folder = File.join(parent, name)
    @mkdirs += 1
    Dir.mkdir(folder)
    folder
  rescue Errno::EEXIST
    @existed += 1
    folder
  end
end

# The same, but each folder is made once.
class FixedArchive < Archive
  def initialize(root)
    super
    @made = {}
  end

  def make(parent, name) = @made[[parent, name]] ||= super
end

options = { stations: 16, records: Float::INFINITY }
OptionParser.new("usage: ruby examples/mkdir.rb [options]   " \
                 "(Ctrl-C stops it, kill -USR1 prints its counters)") do |parser|
  parser.on("--fixed", "remember which folders were made")
  parser.on("--folder DIR", "where the archive is (a temporary folder, removed at the end)")
  parser.on("--stations N", Integer, "number of stations (#{options[:stations]})")
  parser.on("--records N", Integer, "stop after N records")
  parser.on("--seconds S", Float, "stop after S seconds")
end.parse!(into: options)

root = options[:folder] || Dir.mktmpdir("archive")
archive = (options[:fixed] ? FixedArchive : Archive).new(root)
clocks = [Process::CLOCK_PROCESS_CPUTIME_ID, Process::CLOCK_MONOTONIC]
started = clocks.map { |id| Process.clock_gettime(id) }
spent = -> { clocks.zip(started).map { |id, before| Process.clock_gettime(id) - before } }

report = lambda do
  figures = [archive.records, archive.mkdirs, archive.existed, *spent.call]
  $stdout.write(format("records=%d mkdirs=%d existed=%d cpu=%.3fs wall=%.3fs\n", *figures))
end

# A signal may come in the middle of a write, so the handler only sets a flag.
stopped = asked = false
%w[INT TERM].each { |signal| trap(signal) { stopped = true } }
trap("USR1") { asked = true }
Thread.new { sleep(options[:seconds]) && stopped = true } if options[:seconds]
$stdout.sync = true
puts "mkdir: pid #{Process.pid}, #{options[:stations]} stations", "ready"

until stopped || archive.records >= options[:records]
  station = archive.records % options[:stations]
  archive.store("station-#{station}", "2026-11-26", archive.records * 31 % 900)
  next unless asked

  asked = false
  report.call
end
report.call
FileUtils.rm_rf(root) unless options[:folder]
