# frozen_string_literal: true

require "spec_helper"

# Three commands trace one Ruby process at once. The process works on a signal and prints what it
# did.
RSpec.describe "lines, gc and gvl on a Ruby process", :bpf do
  work = <<~RUBY
    $stdout.sync = true
    trap("USR1") { $go = true }

    def burn(ends)
      number = 0
      while Process.clock_gettime(Process::CLOCK_MONOTONIC) < ends
        2000.times { number += 1 }
        number -= 1
      end
    end

    def litter = 200_000.times { Object.new }

    puts "ready"
    loop do
      sleep 0.01
      next unless $go

      $go = false
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      Array.new(2) { Thread.new { burn(began + 1) } }.each(&:join)
      fought = Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
      time, count = GC.total_time, GC.count
      5.times { litter }
      GC.start
      collected = Process.clock_gettime(Process::CLOCK_MONOTONIC) - began - fought
      puts "worked \#{GC.total_time - time} \#{GC.count - count} " \\
           "\#{(fought * 1e9).to_i} \#{(collected * 1e9).to_i}"
    end
  RUBY

  before do
    @folder = Dir.mktmpdir
    File.write(File.join(@folder, "worker.rb"), work)
  end
  after { FileUtils.rm_rf(@folder) }

  it "say what it did" do
    ruby = target(File.join(@folder, "worker.rb")).ready
    has_gvl = RUBY_VERSION >= "3.2"
    unless has_gvl
      refused = probescope("gvl", "-p", ruby.pid)
      expect(refused.status.exitstatus).to eq(1)
      expect(refused.err)
        .to include("does not serve gvl__wait: Ruby tells of waits for the VM lock from 3.2 on")
    end
    commands = ["lines", "gc", *("gvl" if has_gvl)].to_h do |name|
      by = %w[--by self] if name == "lines"
      [name, probescope_start(name, "-p", ruby.pid, "-d", 600, "--json", "--top", 0, *by)]
    end
    ruby.await_on("sample", "gc__done", *("gvl__wait" if has_gvl))
    flushes = ruby.info.header[:flushes]
    await("their interval") { ruby.info.header[:flushes] >= flushes + 3 }
    ruby.signal(:USR1)
    figures = ruby.await_line(/\Aworked (.*)$/, within: 60)[1].split.map(&:to_i)
    gc_ns, collections, fought_ns, collected_ns = figures
    rows = commands.transform_values do |command|
      expect(command.stop(:INT).exitstatus).to eq(0), command.err
      JSON.parse(command.out)["rows"]
    end

    hottest = rows["lines"].find { |row| row["function"].end_with?("burn") }
    expect(work.lines[hottest["line"] - 1]).to include("number += 1")
    expect(hottest["self_share"]).to be > 0.3
    # The command counts every collection. Its total is at least the CPU time that Ruby measured for
    # them. The time in which other processes had the CPU comes on top.
    expect(rows["gc"].sum { |row| row["count"] }).to be_between(collections, collections + 3)
    total = rows["gc"].sum { |row| row["total_ns"] }
    expect(total).to be > gc_ns * 0.8
    expect(total).to be < collected_ns + (fought_ns * 0.2)
    next unless has_gvl

    expect(rows["gvl"].sum { |row| row["total_ns"] }).to be > fought_ns * 0.6
    expect(rows["gvl"].first(2)).to all(include("waits" => be_positive, "mean_ns" => be_positive))
  end
end
