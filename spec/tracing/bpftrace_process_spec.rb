# frozen_string_literal: true

require "spec_helper"
require "ruby/support/tracing"
require "support/process_trees"
require_relative "../../bench/soak"
require "probescope/tracing/order"
require "probescope/tracing/bpftrace_process"

RSpec.describe Probescope::Tracing::BpftraceProcess, :bpf do
  # So often a tracer is discarded. The gate takes fewer moments: .ci/full has all.
  let(:times) { ENV["PROBESCOPE_GATE"] ? 12 : 24 }
  let(:probes) { %w[backtrace__done exception__stats function__stats gc__done object__stats stats__done] }

  def start(folder)
    program = File.join(folder, "program.bt")
    File.write(program, probes.map { |name| "usdt:$1:probescope:#{name} { @ = count(); }" }.join("\n"))
    described_class.new(Probescope::Tracing::Order.of(keys: 8, pages: 8, arguments: []), program, [],
                        Support::LIBRARY)
  end

  def up(target) = probes.select { |name| target.info.semaphore(name).positive? }

  # Discards a tracer while it attaches probe i. With a larger i it is discarded while it detaches,
  # at moments spread over that time.
  def discarded(target, folder, i)
    tracer = start(folder)
    await("#{i} probes") { up(target).size >= [i, probes.size].min }
    if i >= probes.size
      await("the first to go") do
        tracer.signal(:INT) if tracer.waiting_for_events? # 0.17 loses some signals
        up(target).size < probes.size
      end
      sleep((i - probes.size) * 0.02)
    end
    tracer.discard
    await("the end of bpftrace") { tracer.status }
    up(target)
  end

  # With a SIGKILL alone, 8 of 30 tracers left a probe in the process.
  it "leaves no probe in a process, whenever it is discarded during its attach or its end" do
    target, = program(Soak::LOAD)
    target.ready
    left = Dir.mktmpdir do |folder|
      (1..times).map { |i| discarded(target, folder, i * 24 / times) }
    end
    expect(left).to all(be_empty)
    expect(target).to be_alive
  end

  # Like discarded(), but the helper of a killed command does it. This helper does not wait at all.
  def left_alone(target, impatient, i)
    command = keep(Support::Child.new(RbConfig.ruby, "-r#{impatient}", Support::EXE, "calls",
                                      "-p", target.pid.to_s, "-d", "600"))
    await("its probes") { target.info.semaphore("stats__done").positive? }
    tracers = bpftraces(command)
    command.signal(:INT)
    await("the first to go") do
      target.info.semaphore("stats__done").zero? || target.info.semaphore("function__stats").zero?
    end
    sleep(i * 0.02)
    command.signal(:KILL)
    command.wait(within: 60)
    await("the end of its bpftrace", within: 240) { tracers.none? { |pid| File.exist?("/proc/#{pid}") } }
    target.info.probes.keys.select { |name| target.info.semaphore(name).positive? }
  end

  # bpftrace dies with its parent, by a SIGKILL.
  it "leaves none if its command ends before the kernel has removed its probes" do
    target, = program(Soak::LOAD)
    target.ready
    left = Dir.mktmpdir do |folder|
      impatient = File.join(folder, "impatient.rb")
      File.write(impatient, <<~RUBY)
        require "#{Support::ROOT}/lib/probescope/tracing/bpftrace_process"
        require "#{Support::ROOT}/lib/probescope/tracing/client"
        Probescope::Tracing::BpftraceProcess.send(:remove_const, :KILL_LIMIT)
        Probescope::Tracing::BpftraceProcess::KILL_LIMIT = 0
        client = Probescope::Tracing::Client
        helper = [*client::HELPER[0..1], "-r#{impatient}", *client::HELPER[2..]]
        client.send(:remove_const, :HELPER)
        client::HELPER = helper
      RUBY
      (1..(times / 2)).map { |i| left_alone(target, impatient, i * 24 / times) }
    end
    expect(left).to all(be_empty)
    expect(target).to be_alive
  end
end
