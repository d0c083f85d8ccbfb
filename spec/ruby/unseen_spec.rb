# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

# A program waits in each way (support/blocking.rb), with and without a tracer of samples. The
# kernel's tracepoints show the results of its system calls. strace stops a thread at each call and
# each signal, so ticks come at other moments.
RSpec.describe "the signal of a tick", :bpf do
  before { skip "ticks were not tried on this version of Ruby" unless Support::RUBY_TICKS }

  # The number of other calls varies.
  let(:counted) { %w[accept4 clone close fcntl pipe2] }
  let(:urgent) { Signal.list["URG"].to_s }

  # The kernel delivers several waiting signals one right after the other, and any of them may have
  # ended the call. -512 to -516 are the kernel's codes for a call that it may restart, depending on
  # the signal's handler; -4 is EINTR. A call may also end like this for a signal that another
  # thread took. A tick that comes later, on the way back from the call, did not end it.
  def watch(pid)
    calls = counted.map { |name| "tracepoint:syscalls:sys_enter_#{name}" }.join(", ")
    keep(Support::Tracer.new(<<~BPFTRACE)).tap { |tracer| tracer.await_line(/^ready/) }
      BEGIN { printf("ready\\n"); }
      tracepoint:raw_syscalls:sys_exit /pid == #{pid} && comm != "probescope"/ {
        if (@early[tid]) { printf("cut %d\\n", @early[tid] - 1); }
        @early[tid] = 0;
        @cut[tid] = @sent[tid] && ((args->ret <= -512 && args->ret >= -516) || args->ret == -4)
                    ? args->id + 1 : 0;
      }
      tracepoint:signal:signal_generate /args->sig == #{urgent}/ { @sent[args->pid] = 1; }
      #{calls} /pid == #{pid} && comm != "probescope"/ {
        @calls[probe] = count();
      }
      tracepoint:signal:signal_deliver /pid == #{pid}/ {
        @signals[args->sig] = count();
        @early[tid] = args->sig == #{urgent} ? @cut[tid] : 0;
        if (args->sig != #{urgent}) { @cut[tid] = 0; } else { @sent[tid] = 0; }
      }
      END { clear(@cut); clear(@early); clear(@sent); }
    BPFTRACE
  end

  def numbers(text, map) = text.scan(/^@#{map}\[(.+)\]: (\d+)/).to_h.transform_values(&:to_i)

  # Returns what the kernel saw of the program, and the program's report of its waits.
  def watched(listens, strace: false)
    waiting, directory = program(<<~RUBY)
      require #{File.join(__dir__, "support/blocking").dump}
      Blocking.all(1)
      $stdout.write "ready\\n"
      $stdout.flush
      Gate.open :go
      Gate.done Blocking.all(4)
    RUBY
    waiting.ready
    if listens
      attacher(waiting, "sample__stats", "stats__done").attached
      waiting.await_on("sample__stats")
      expect(waiting.info.state("sample__stats")).to eq(:on)
    end
    tracer = strace ? stop_at_calls(waiting) : watch(waiting.pid)
    FileUtils.touch(File.join(directory, "go"))
    report = JSON.parse(waiting.await_line(/\Areport (.*)/, within: 120)[1])
    return report if strace

    seen = tracer.finish
    { report: report, calls: numbers(seen, :calls), signals: numbers(seen, :signals),
      cut: seen.scan(/^cut \d+/).tally }
  end

  def stop_at_calls(program)
    skip "no strace" unless system("strace", "-V", out: File::NULL, err: File::NULL)
    keep(Support::Child.new("strace", "-f", "-o", File::NULL, "-p", program.pid.to_s))
      .tap { |strace| strace.await_line(/attached/, stream: :err) }
  end

  it "ends no system call, and changes no result" do
    plain = watched(false)
    sampled = watched(true)
    expect(plain[:signals]).not_to include(urgent)
    expect(sampled[:signals][urgent]).to be > 20
    expect(sampled[:cut]).to be_empty
    expect(sampled.slice(:calls, :report)).to eq(plain.slice(:calls, :report))
    soon = sampled[:report].values.flatten(1).map(&:first)
    expect(soon).to all(be(false)), "ended too soon: #{sampled[:report]}"
  end

  it "changes nothing under strace" do
    expect(watched(true, strace: true).transform_values { |outcomes| outcomes.map(&:last) }).to include(
      "sleep" => ["woken"], "accept" => ["late"], "exec" => [0], "fork" => [3],
      "system" => [[false, 4]], "flock" => [[0, 0]]
    )
  end
end
