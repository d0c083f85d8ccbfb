# frozen_string_literal: true

# Lets several tracers at once attach and detach 10,000 times on one process with eight threads
# under load: does it grow? Writes its section of docs/performance.md. spec/ruby/switching_spec.rb
# does the same a hundred times.
#
#   bundle exec rake soak               # twenty minutes, as root; CYCLES=100000 for a weekend,
#                                       # GROWTH=8192 for the KiB allowed
#   RUBY=/path/to/ruby RUBY_OPTIONS=--yjit CYCLES=2000 bundle exec rake soak
require "fileutils"
require "rbconfig"
%w[paths await elf info child target bpf tracer attacher].each do |name|
  require_relative "../spec/support/#{name}"
end
require_relative "performance_page"

class Soak
  include Support::Await

  LOAD = <<~RUBY
    class Load
      def outer(n) = n.times { inner(_1) }
      def inner(n) = (n % 10 == 0 ? (raise "soft" rescue told($!)) : n.to_s)
      def told(error) = error.backtrace.size
    end
    7.times { Thread.new { loop { Load.new.outer(20); sleep 0.0005 } } }
    puts "ready"
    $stdout.flush
    loop { Load.new.outer(50) }
  RUBY
  # Each list is a separate tracer, so each attaches while others are attached, attach or detach.
  TRACERS = [%w[function__stats], %w[exception__stats], %w[object__stats], %w[sample__stats],
             %w[backtrace__done], %w[function__entry line], %w[function__slow1ms],
             %w[exception__raise stats__done]].freeze
  # The first tracers allocate what is kept: names, buffers, modules. Later nothing may grow.
  WARM_UP = 24

  # A process's KiB of memory, descriptors, threads, and bytes of the library.
  Holdings = Struct.new(:rss, :files, :threads, :memory, keyword_init: true)

  # cycles: number for all tracers together, without the warm-up.
  def initialize(cycles:, ruby: ENV.fetch("RUBY", RbConfig.ruby),
                 options: ENV.fetch("RUBY_OPTIONS", "").split)
    @each = (cycles.to_f / TRACERS.size).ceil
    @target = Support::Target.new(LOAD, ruby: ruby, options: options).ready
    @attachers = []
  end

  attr_reader :before, :after, :most, :seconds, :target

  # Yields the number of finished cycles and the holdings each second.
  def run
    cycle(WARM_UP / TRACERS.size)
    @before = @most = settled
    began = monotonic
    cycle(@each) do |done|
      now = holdings
      @most = now if now.rss > @most.rss
      yield done, now if block_given?
    end
    @seconds = monotonic - began
    @after = settled
    self
  end

  def done = @each * TRACERS.size
  def switches = @target.info.header[:switches]
  def alive? = @target.alive? && @target.err.empty?
  def stop = [*@attachers, @target].each(&:kill_all)

  def write
    PerformancePage.write("bench/soak.rb", section)
  end

  private

  def cycle(each)
    @attachers = TRACERS.map { |probes| Support::Attacher.new(@target, *probes, cycles: each) }
    seen = 0
    while @attachers.any?(&:alive?)
      sleep 0.2
      yield @attachers.sum { |one| one.cycles.size } if block_given? && ((seen += 1) % 5).zero?
    end
    @attachers.each(&:finish)
  end

  def holdings
    status = File.read("/proc/#{@target.pid}/status")
    Holdings.new(rss: status[/VmRSS:\s+(\d+)/, 1].to_i, files: Dir.children("/proc/#{@target.pid}/fd").size,
                 threads: status[/Threads:\s+(\d+)/, 1].to_i, memory: @target.info.header[:memory_used])
  end

  # Returns the holdings after the hooks are out and their memory is freed.
  def settled
    @target.await_off(*TRACERS.flatten)
    holdings
  end

  def section
    rows = { "memory of the process (KiB)" => :rss, "memory of probescope in it (bytes)" => :memory,
             "file descriptors" => :files, "threads" => :threads }
    lines = rows.map do |label, field|
      "| #{label} | #{before[field]} | #{most[field]} | #{after[field]} |"
    end
    version = `#{ENV.fetch("RUBY", RbConfig.ruby)} -v`[/\A\S+ \S+/]
    <<~MARKDOWN
      <!-- bench/soak.rb -->
      ## Tracers that come and go

      #{TRACERS.size} tracers at once attached to and detached from one process of #{version} with
      eight threads under load, #{done} times in total, in #{(seconds / 60).round} minutes (`rake
      soak`). The process switched hooks #{switches} times.

      | | after #{WARM_UP} attaches | at the highest memory of the process | after #{done} more |
      |---|---|---|---|
      #{lines.join("\n")}
      <!-- end of bench/soak.rb -->
    MARKDOWN
  end
end

if $PROGRAM_NAME == __FILE__
  soak = Soak.new(cycles: Integer(ENV.fetch("CYCLES", 10_000)))
  begin
    shown = 0
    soak.run do |done, now|
      next if (shown += 1) % 10 != 0

      warn format("soak: %6d of %d cycles, %d KiB, %d bytes of probescope, %d descriptors, %d threads",
                  done, soak.done, *now.to_h.values_at(:rss, :memory, :files, :threads))
    end
    soak.write if soak.done >= 10_000
    p before: soak.before.to_h, after: soak.after.to_h, alive: soak.alive?
    grown = soak.after.rss - soak.before.rss
    abort "soak: it has grown by #{grown} KiB" if grown > Integer(ENV.fetch("GROWTH", 8192))
    if soak.after.files != soak.before.files || !soak.alive?
      abort "soak: the number of open files has changed, or the process has ended"
    end
  ensure
    soak.stop
  end
end
