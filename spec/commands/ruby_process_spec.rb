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
    # No signal ends this wait: the second call is for ever, with the VM lock held.
    lock = Fiddle::Function.new(Fiddle.dlopen(nil)["pthread_mutex_lock"], [Fiddle::TYPE_VOIDP], Fiddle::TYPE_INT, need_gvl: true)
    mutex = "\\0" * 64
    2.times { lock.call(mutex) }
  RUBY

  it_behaves_like "a process under the commands", suffix: ".rb", work: work, burn: burn, short: short, deaf: deaf,
                                                  separator: "#", error: "ArgumentError",
                                                  allocates: "def allocate", allocated: "Object",
                                                  formatted: "backtrace", asks: "e.backtrace"
end
