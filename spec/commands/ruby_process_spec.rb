# frozen_string_literal: true

require "spec_helper"
require "support/shared/commands_on_a_process"

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

      def nap = sleep(0.02)

      def tell
        raise ArgumentError, "told"
      rescue ArgumentError => e
        e.backtrace
      end
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
      3.times { worker.tell && worker.nap }
      puts "worked"
    end
  RUBY

  burn = "def burn = 10_000.times { |i| i }\n$stdout.sync = true\nputs 'ready'\nloop { burn }"

  short = <<~RUBY
    def work = nil

    $stdout.sync = true
    puts "ready"
    $stdin.gets
    1000.times { work }
  RUBY
  deaf = <<~RUBY
    require "fiddle"

    $stdout.sync = true
    puts "ready"
    # No signal ends this wait. The second call never returns and holds the VM lock.
    lock = Fiddle::Function.new(Fiddle.dlopen(nil)["pthread_mutex_lock"], [Fiddle::TYPE_VOIDP],
                                Fiddle::TYPE_INT, need_gvl: true)
    mutex = "\\0" * 64
    2.times { lock.call(mutex) }
  RUBY

  it_behaves_like "a process under the commands",
                  suffix: ".rb", work: work, burn: burn, short: short, deaf: deaf,
                  separator: "#", error: "ArgumentError",
                  allocates: "def allocate", allocated: "Object",
                  formatted: "backtrace", asks: "e.backtrace"

  # Ruby 3.1 and 3.2 keep the number that a forked child's main thread has in the parent. That
  # number has no timer in the child.
  [true, false].each do |before|
    it "samples a child like its parent, forked #{before ? "after" : "before"} probescope was loaded" do
      parent = target(<<~RUBY, loaded: before).ready
        #{burn.lines.first}
        child = fork do
          require #{"#{Support::ROOT}/lib/probescope/auto".inspect}
          loop { burn }
        end
        require #{"#{Support::ROOT}/lib/probescope/auto".inspect}
        $stdout.sync = true
        puts "child \#{child}", "ready"
        loop { burn }
      RUBY
      child = parent.out[/^child (\d+)/, 1].to_i
      said = [parent.pid, child].map do |pid|
        expect(probescope("hot", "-p", pid, "-d", 1).status.exitstatus).to eq(0)
        rows = probescope("status", "-p", pid, "--json").json["rows"]
        rows.find { |row| row["name"] == "sample__stats" }["reason"]
      end
      expect(said.last).to eq(said.first)
    ensure
      Process.kill(:KILL, child) if child
    end
  end
end
