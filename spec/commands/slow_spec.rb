# frozen_string_literal: true

require "spec_helper"
require "ruby/support/opentelemetry"
require "time"

# The subject is a program with OpenTelemetry and one forked worker. For each of its calls it notes
# the shortest possible time (measured inside), the longest (measured outside), the span, and the
# end. Two commands trace it at once.
RSpec.describe "slow on a Ruby process", :bpf do
  work = <<~RUBY
    require "json"
    require "opentelemetry-sdk"
    require "tmpdir"

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)

    class Job
      attr_reader :notes

      def initialize = @notes = []

      def note(name, *arguments)
        before = now
        context = OpenTelemetry::Trace.current_span.context
        parent = OpenTelemetry::Trace::Propagation::TraceContext::TraceParent
        said = parent.from_span_context(context).to_s if context.valid?
        public_send(name, *arguments)
      ensure
        @notes << {function: "Job#\#{name}", inside: @inside, outside: now - before, ended: Time.now.to_f,
                   traceparent: said}
      end

      def body
        start = now
        yield
      ensure
        @inside = now - start
      end

      def waits(ms) = body { sleep(ms / 1000.0) }
      def fails = body { sleep(0.004); raise ArgumentError }
      def quick = body { 1 }
      def pays = body { (note(:fails) rescue 1); note(:waits, 3); note(:waits, 40); 100.times { quick } }
      def idles = body { Dir.mktmpdir { sleep(0.005) } }
    end

    def work
      job = Job.new
      TRACER.in_span("request") { job.note(:pays) }
      Thread.new { job.note(:idles) }.join
      puts JSON.generate(pid: Process.pid, notes: job.notes)
    end

    $stdout.sync = true
    TRACER = OpenTelemetry::SDK::Trace::TracerProvider.new.tracer("spec")
    trap("USR1") { $go = true }
    worker = fork
    puts "ready \#{worker}" if worker
    loop do
      sleep 0.01
      next unless $go

      $go = false
      work
    end
  RUBY

  before do
    @folder = Dir.mktmpdir
    File.write(File.join(@folder, "worker.rb"), work)
  end
  after { FileUtils.rm_rf(@folder) }

  define_method(:line_of) { |text| work.lines.index { |line| line.include?(text) } + 1 }

  # Returns the notes of both processes.
  def reports(process, worker)
    [process.pid, worker].map do |pid|
      Process.kill(:USR1, pid)
      JSON.parse(process.await_line(/\A(\{"pid":#{pid},.*)$/)[1])
    end
  end

  # Each call that certainly exceeded the threshold has a row, each call that certainly did not has
  # none, and the row's figures agree with the notes.
  def check(rows, notes, least)
    notes.group_by { |note| note["function"] }.each do |function, noted|
      told = rows.select { |row| row["function"] == function }.sort_by { |row| row["at"] }
      bounds = %w[inside outside].map { |time| noted.count { |note| note[time] >= least } }
      expect(told.size).to be_between(*bounds), function
      next unless told.size == noted.size

      told.zip(noted).each do |row, note|
        expect(row["elapsed_ns"]).to be_between(note["inside"], note["outside"]), function
        expect(Time.iso8601(row["at"]).to_f)
          .to be_between(note["ended"] - (note["outside"] / 1e9), note["ended"] + 0.1)
        expect(row["traceparent"]).to eq(note["traceparent"])
      end
    end
  end

  it "gives every slow call of the process and of its worker, with its request and its slow inner call" do
    covered = %w[pays waits fails quick idles].map { |name| "Job##{name}" }.join(",")
    process = target(File.join(@folder, "worker.rb"), options: OpenTelemetryGems.options,
                                                      env: {"PROBESCOPE_FUNCTIONS" => covered})
    worker = Integer(process.await_line(/\Aready (\d+)$/)[1])
    rows = probescope_start("slow", "-p", process.pid, "--workers", "--by-pid", "--threshold", "2ms",
                            "-d", 600, "--json", "--top", 0)
    table = probescope_start("slow", "-p", process.pid, "--threshold", "35ms",
                             "--function", 'Job#{pays,waits}', "--all", "-d", 600)
    process.await_on("function__slow1ms", "function__slow10ms", "functions__all")
    process.await_on("function__slow1ms", of: worker)
    [process.pid, worker].each do |pid|
      flushes = process.info(pid).header[:flushes]
      await("the intervals") { process.info(pid).header[:flushes] >= flushes + 2 }
    end
    reports = reports(process, worker)
    [rows, table].each { |command| expect(command.stop(:INT).exitstatus).to eq(0), command.err }

    rows = JSON.parse(rows.out)["rows"]
    reports.each do |report|
      own = rows.select do |row|
        row["pid"] == report["pid"] && !%w[Job#note Job#body].include?(row["function"])
      end
      check(own, report["notes"], 2_000_000)
      pays = own.find { |row| row["function"] == "Job#pays" }
      expect(pays).to include("line" => line_of("def pays"), "file" => end_with("worker.rb"),
                              "outcome" => "returned", "thread_id" => report["pid"],
                              "traceparent" => match(/\A00-\h{32}-\h{16}-01\z/))
      inside = own[own.index(pays) + 1, 3]
      expect(inside.map { |row| row.values_at("function", "outcome") })
        .to contain_exactly(%w[Job#waits returned], %w[Job#waits returned], %w[Job#fails raised])
      expect(inside.first["elapsed_ns"]).to eq(inside.map { |row| row["elapsed_ns"] }.max)
      idles = own.find { |row| row["function"] == "Job#idles" }
      expect(idles["thread_id"]).not_to eq(report["pid"])
      expect(idles["traceparent"]).to be_nil
      # The other command's --all also widened this command's functions, in the one process that
      # both trace.
      expect(own.any? { |row| row["function"] == "Dir.mktmpdir" }).to eq(report["pid"] == process.pid)
      expect(idles["self_ns"]).to be < 5_000_000 if report["pid"] == process.pid
    end
    expect(table.out.scan(/  ((?:Job#|Dir\.)\w+) /).flatten).to eq(%w[Job#pays Job#waits])
  end
end
