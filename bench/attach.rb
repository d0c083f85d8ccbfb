# frozen_string_literal: true

# Measures how long the hooks of a large program take to come in and out, and for how long the
# program stands still meanwhile: 1,000 files, 10,000 methods, all in use. Writes its section of
# docs/performance.md.
#
#   bundle exec rake bench:attach       # half a minute, as root
#   RUBY=/path/to/ruby RUBY_OPTIONS=--yjit bundle exec rake bench:attach
#
# Without RUBY_OPTIONS the section is written anew. With them, lines are added to it.
require "fileutils"
require "rbconfig"
require "tmpdir"
%w[paths await elf info child target bpf tracer attacher].each do |name|
  require_relative "../spec/support/#{name}"
end
require_relative "performance_page"

class Attach
  include Support::Await

  FILES = 1000
  METHODS_EACH = 10
  ROUNDS = 3

  def initialize(ruby: ENV.fetch("RUBY", RbConfig.ruby), options: ENV.fetch("RUBY_OPTIONS", "").split)
    @ruby = ruby
    @options = options
  end

  def write
    before = @options.empty? ? [] : PerformancePage.section("bench/attach.rb").scan(/^\| .*\n/).drop(1)
    PerformancePage.write("bench/attach.rb", section(before.join + rows))
  end

  # Returns the figures of one attach and detach, in ms. later: probescope is loaded after the
  # program's files.
  def measure(later:, files: FILES, methods: METHODS_EACH)
    directory = Dir.mktmpdir("probescope")
    subject = Support::Target.new(
      File.join(__dir__, "many.rb"), files.to_s, methods.to_s, *("later" if later),
      loaded: false, stdin: true, ruby: @ruby, options: @options, env: { "PROBESCOPE_ROOT" => directory }
    )
    subject.await_line(/\Aready$/, within: 120)
    target = subject.info
    idle = longest(subject)
    attacher = Support::Attacher.new(subject, "function__stats")
    hooked = attacher.attached(within: 120)[:hooked_ms]
    on = longest(subject)
    out = attacher.detach
    await("the hooks out") { target.state("function__stats") == :off }
    { idle: idle, hooked: hooked, on: on, unhooked: out[:unhooked_ms] - out[:detach_ms],
      off: longest(subject) }
  ensure
    attacher&.kill_all
    subject&.kill_all
    FileUtils.rm_rf(directory)
  end

  private

  # Returns the CPU ms of the longest step since the last call.
  def longest(subject)
    seen = subject.out.scan(/^longest/).size
    subject.puts("longest")
    await("a report of #{subject}") { subject.out.scan(/^longest cpu=([\d.]+).*\n/)[seen] }.first.to_f
  end

  def rows
    version = `#{@ruby} #{@options.join(" ")} -e 'print RUBY_VERSION'`
    name = [version, *@options].join(" ")
    name << " (#{PerformancePage.date})" if @options.any?
    [["before its files", false], ["after them", true]].map do |label, later|
      warn "bench: #{name}, probescope loaded #{label} ..."
      rounds = Array.new(ROUNDS) { measure(later: later) }
      figures = rounds.first.keys.to_h { |key| [key, rounds.map { |round| round[key] }.min] }
      format("| %s, probescope loaded %s | %.0f ms | %.1f ms | %.0f ms | %.1f ms | %.1f ms |\n", name, label,
             *figures.values_at(:hooked, :on, :unhooked, :off, :idle))
    end.join
  end

  def section(rows)
    files, methods = [FILES, FILES * METHODS_EACH].map { |number| number.to_s.sub(/(?=000$)/, ",") }
    added = @options.any?
    dated = added ? PerformancePage.dated_line("bench/attach.rb", "rows") : PerformancePage.line
    <<~MARKDOWN
      <!-- bench/attach.rb -->
      ## Attaching to a large program

      #{dated}

      The program has #{files} files and #{methods} methods, all used and compiled, and a heap of
      some 200,000 objects (`rake bench:attach`; each figure is the least of #{ROUNDS}). "In" is the
      time from the attach until the hooks are in. "Out" is the time from the removal of the probe
      by the kernel until the hooks are out. The program has one thread, which works in steps.
      "Longest step" is the CPU time of its longest step in that time, with its own work and its
      garbage collections. The last column is the longest step without a tracer.

      | | in | longest step | out | longest step | no tracer |
      |---|---|---|---|---|---|
      #{rows.chomp}
      <!-- end of bench/attach.rb -->
    MARKDOWN
  end
end

Attach.new.write if $PROGRAM_NAME == __FILE__
