# frozen_string_literal: true

require "spec_helper"

# The commands on a real Ruby process that does known work: nothing until they are attached, then all of it.
RSpec.describe "The commands on a Ruby process", :bpf do
  work = <<~RUBY
    class Worker
      def call = nil

      def fail
        raise ArgumentError, "known"
      rescue ArgumentError
        nil
      end

      def allocate = Object.new
    end

    $stdout.sync = true
    trap("USR1") { $go = true }
    worker = Worker.new
    puts "ready"
    loop do
      sleep 0.01
      next unless $go

      $go = false
      1000.times { worker.call }
      500.times { worker.fail }
      2000.times { worker.allocate }
      puts "worked"
    end
  RUBY

  define_method(:work) { work }

  def process
    @folder = Dir.mktmpdir
    script = File.join(@folder, "worker.rb")
    File.write(script, work)
    target(script, env: {"PROBESCOPE_FUNCTIONS" => "#{@folder}/**"}).ready
  end

  after { FileUtils.rm_rf(@folder) if @folder }

  def line_of(text) = work.lines.index { |line| line.include?(text) } + 1

  # The rows of a command during which the process did its work once.
  def rows(command, probe)
    ruby = process
    running = probescope_start(command, "-p", ruby.pid, "-d", 600, "--json", "--top", 0)
    ruby.await_on(probe)
    flushes = ruby.info.header[:flushes]
    await("the interval") { ruby.info.header[:flushes] >= flushes + 2 }
    ruby.signal(:USR1)
    ruby.await_line(/\Aworked$/)
    expect(running.stop(:INT).exitstatus).to eq(0), running.err
    JSON.parse(running.out)["rows"].select { |row| row["file"].to_s.end_with?("worker.rb") }
  end

  it "calls: every call, and none more" do
    counted = rows("calls", "function__stats").to_h { |row| [row["function"], row["calls"]] }
    expect(counted).to include("Worker#call" => 1000, "Worker#fail" => 500, "Worker#allocate" => 2000)
  end

  it "exceptions: every raise, with its line" do
    row = rows("exceptions", "exception__stats").first
    expect(row).to include("type" => "ArgumentError", "line" => line_of("raise ArgumentError"), "count" => 500,
                           "function" => "Worker#fail")
    expect(row["backtrace_cost_ns"]).to be_positive
  end

  it "alloc: every object, with its line" do
    found = rows("alloc", "object__stats").find { |row| row["class"] == "Object" }
    expect(found).to include("line" => line_of("def allocate"), "count" => 2000)
    expect(found["bytes"]).to be >= 2000 * 40
  end

  it "hot: the function that burns, first" do
    burning = target("def burn = 10_000.times { |i| i }\n$stdout.sync = true\nputs 'ready'\nloop { burn }", options: []).ready
    rows = probescope("hot", "-p", burning.pid, "-d", 1, "--json").json["rows"]
    expect(rows.find { |row| row["function"].to_s.end_with?("burn") }["total_share"]).to be > 0.9
  end
end
