# frozen_string_literal: true

require "open3"

# What a tracer does to a process with a JIT, which is YJIT unless stated otherwise. The program
# measures ns for a call all the time, as the minimum of many short loops, so other programs do not
# disturb the figure. It is compared with itself, so the machine's speed does not matter.
RSpec.describe "A process with a JIT", :bpf do
  # Versions whose YJIT compiles again after targeted call hooks are removed, as measured: decision
  # 037.
  recovers = RUBY_VERSION.match?(/\A(3\.[234]|4\.0)\./)
  program = <<~RUBY
    def callee(number) = number

    def work
      i = 0
      while i < 1000
        callee(i)
        i += 1
      end
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)

    def round
      start = now
      work
      now - start
    end

    $stdout.sync = true
    puts "ready"
    loop { puts "ns \#{Array.new(300) { round }.min / 1000.0}" }
  RUBY

  before(:context) do
    @yjit = Open3.capture2e(RbConfig.ruby, "--yjit", "-e", "puts RubyVM::YJIT.enabled?").first == "true\n"
  end
  before { skip "this Ruby has no YJIT" unless @yjit }

  define_method(:with_yjit) { |env = {}| target(program, options: ["--yjit"], env: env).ready }

  # Returns the present ns for a call, after the JIT had time to compile discarded code again.
  def ns(target)
    figures = -> { target.out.scan(/^ns ([\d.]+)$/).flatten }
    seen = figures.call.size
    await("measurements of #{target}", within: 120) { figures.call.size >= seen + 12 }
    figures.call.drop(seen + 2).map(&:to_f).min
  end

  # Returns the ns for a call before, during and after a trace of these probes.
  def around(target, *probes, state: :on)
    before = ns(target)
    text = probes.map { |probe| "usdt:*:probescope:#{probe} { @rows = count(); }" }.join("\n")
    tracer = tracer(text, pid: target.pid)
    probes.each do |probe|
      await("#{probe} #{state}", within: 60) { Array(state).include?(target.info.state(probe)) }
    end
    during = ns(target)
    yield if block_given?
    tracer.stop(:INT)
    target.await_off(*probes)
    [before, during, ns(target)]
  end

  # The process, doctor and the commands all give the reason. The first two give it before any
  # tracer attaches.
  def expect_refusal(target, reason, probes:, commands:)
    probes.each { |probe| expect(target.info.probes[probe]).to include(state: :refused, reason: reason) }
    doctor = probescope("doctor", "-p", target.pid)
    probes.each { |probe| expect(doctor.out).to match(/^--  #{probe} is refused: #{reason}/) }
    commands.map { |name| [name, probescope_start(name, "-p", target.pid, "-d", 1)] }.each do |name, command|
      expect(command.wait.exitstatus).to eq(1), name
      expect(command.err).to match(/process #{target.pid} does not serve #{Regexp.union(probes)}: #{reason}/)
      expect(command.err).to include("probescope doctor -p #{target.pid}")
    end
  end

  it "runs as fast as before, during and after probes of allocations, collections and samples" do
    # Before 3.3, samples are charged at the next check.
    probes = %w[object__stats gc__done sample__stats]
    before, during, after = around(with_yjit, *probes, state: %i[on degraded])
    expect([during, after]).to all(be < before * 2)
  end

  if recovers
    it "runs as fast as before, during and after probes of exceptions" do
      target = with_yjit
      3.times do
        before, during, after = around(target, "exception__stats", "object__stats")
        expect([during, after]).to all(be < before * 2)
      end
    end

    it "runs as fast as before after a tracer of functions has left, and one of lines" do
      target = with_yjit
      %w[function__stats line].each do |probe|
        before, during, after = around(target, probe)
        expect(during).to be > before * 3 # otherwise nothing was hooked
        expect(after).to be < before * 2
      end
    end
  else
    it "refuses probes of functions, lines and exceptions, gives the reason, and stays as fast as before" do
      target = with_yjit
      before, during, after = around(target, "function__stats", "line", "exception__stats", state: :refused)
      expect([during, after]).to all(be < before * 2)
      expect_refusal(target, /YJIT .*PROBESCOPE_FORCE=1/,
                     probes: %w[function__stats function__entry line exception__stats],
                     commands: %w[calls flow exceptions])
    end

    it "serves them with PROBESCOPE_FORCE=1" do
      before, during, = around(with_yjit("PROBESCOPE_FORCE" => "1"), "function__stats", "exception__stats")
      expect(during).to be > before * 3
    end
  end

  if defined?(RubyVM::ZJIT)
    it "refuses probes of functions and lines with ZJIT, gives the reason, and serves the others" do
      target = target(program, options: ["--zjit"]).ready
      before, during, after = around(target, "exception__stats", "object__stats")
      expect([during, after]).to all(be < before * 2)
      expect_refusal(target, /ZJIT .*PROBESCOPE_FORCE=1/,
                     probes: %w[function__stats line], commands: %w[calls])
    end
  end
end
