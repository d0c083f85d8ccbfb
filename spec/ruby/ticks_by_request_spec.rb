# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

# A sample belongs to its own request, also if requests take turns on one thread, and after the
# request has ended.
RSpec.describe "samples of requests at the tick", :bpf do
  before { skip "ticks were not tried on this version of Ruby" unless Support::RUBY_TICKS }

  # The common part of these programs.
  common = <<~RUBY
    require "digest"
    TEXT = "x" * 400_000
    USED = Hash.new(0)
    LOCK = Thread::Mutex.new
    def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond)
    def whole = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)
    def burn(n) = (i = 0; i += 1 while i < n)
    def crunch = Digest::SHA256.digest(TEXT) # without the VM lock

    def timed(name)
      began = cpu
      yield
      used = cpu - began
      LOCK.synchronize { USED[name] += used }
    end

    def request(name) = Probescope::Native::Request.start(*name.split, nil, nil)

    def within(request)
      outer = Probescope::Native.enter_request(request)
      yield
    ensure
      Probescope::Native.enter_request(outer)
    end

    def on
      Gate.on :sample__stats, :stats__by_request
      Gate.flushed(1)
    end

    def finish(more = {})
      Gate.flushed(2)
      Gate.done({ used: USED, state: Probescope.status[:probes][:sample__stats].first(2) }.merge(more))
    end
  RUBY

  define_method(:traced) do |source|
    fields = { sample__stats: %i[function request self self_samples] }
    run = trace(common + source, fields, attach: %i[stats__by_request], within: 240)
    expect(run.report[:state]).to eq(["on", nil])
    run
  end

  # Expects {[request, function] => samples} of these functions to give each function's share of its
  # request within this many points of the program's clocks.
  def expect_shares(run, points, *functions)
    rows = run.totals(:sample__stats, %i[request function])
    rows = rows.select { |(_, function), _| functions.include?(function) }
    found = rows.group_by { |(request, _), _| request }
    found = found.transform_values { |own| own.sum { |_, row| row[:self] } }
    truth = run.report[:used].transform_keys(&:to_s)
    expect(found.keys).to match_array(truth.keys)
    truth.each do |name, used|
      share = found[name] / found.values.sum.to_f
      expect(share).to be_within(points).of(used / truth.values.sum.to_f),
                       "#{name}: #{found}, in truth #{truth}"
    end
    rows.transform_values { |row| row[:self_samples] }
  end

  it "agree with their threads' clocks, in fibers, in C and in threads" do
    attempts do
      run = traced(<<~RUBY)
        def fibers
          work = { "GET /fiber" => -> { burn(60_000) },
                   "GET /c" => -> { 4.times { crunch } },
                   "" => -> { burn(20_000) } }
          fibers = work.map do |name, job|
            Fiber.new do
              turns = -> { 5.times { timed(name, &job); Fiber.yield } }
              name.empty? ? turns.call : within(request(name), &turns)
              nil
            end
          end
          fibers.each { |fiber| fiber.resume if fiber.alive? } while fibers.any?(&:alive?)
        end

        JOBS = Thread::SizedQueue.new(4)
        POOL = Array.new(2) do
          Thread.new do
            while (name, times = JOBS.pop) do within(request(name)) { timed(name) { burn(times) } } end
          end
        end

        on
        ends = whole + 9_000_000_000
        while whole < ends
          JOBS << ["GET /a", 90_000] << ["GET /b", 30_000]
          fibers
        end
        JOBS.close
        POOL.each(&:join)
        finish
      RUBY
      expect_shares(run, 0.05, "Object#burn", "Object#crunch")
    end
  end

  it "belong to requests that have ended, and not to later ones",
     full: "measures for minutes beside other tests" do
    attempts do
      run = traced(<<~RUBY)
        def long(n) = (i = 0; i += 1 while i < n)
        def short(n) = (i = 0; i += 1 while i < n)

        def turn
          one = request("GET /long")
          within(one) { timed("GET /long") { long(9_000) } }
          one.done(200, nil)
          within(request("GET /short")) { timed("GET /short") { short(3_000) } } # never done
        end

        on
        ends = whole + 6_000_000_000
        20.times { turn } while whole < ends
        finish
      RUBY
      samples = expect_shares(run, 0.05, "Object#long", "Object#short")
      others = samples.reject do |(request, function), _|
        request.delete_prefix("GET /") == function.delete_prefix("Object#")
      end
      expect(others.values.sum).to be <= 0.01 * samples.values.sum, samples.to_s
    end
  end

  it "include the requests that run already" do
    run = traced(<<~RUBY)
      running = Thread::Queue.new
      threads = %w[/a /b].map do |path|
        Thread.new do
          one = request("GET " + path)
          within(one) { running << 1; burn(1_000) until Thread.current[:end] }
          one.done(200, nil)
        end
      end
      2.times { running.pop }
      on
      ends = whole + 2_000_000_000
      sleep 0.01 while whole < ends
      Gate.flushed(1)
      threads.each { |thread| thread[:end] = true }.each(&:join)
      finish
    RUBY
    found = run.totals(:sample__stats, :request)
    expect(found.fetch("", { self: 0 })[:self]).to be < 0.05 * found.sum { |_, row| row[:self] }, found.to_s
    expect(found.keys).to include("GET /a", "GET /b")
  end

  it "are taken while requests are created and dropped in threads, fibers and children, and objects move",
     full: "the crash hunt does the same" do
    run = traced(<<~RUBY)
      def fresh(n) = within(request("GET /" + (97 + n % 20).chr)) { burn(n % 20 * 100) }

      def serve(seconds, made)
        ends = cpu + seconds * 1_000_000_000
        while cpu < ends
          20.times { made << 1; made.size.odd? ? fresh(made.size) : Fiber.new { fresh(made.size) }.resume }
        end
      end

      on
      made = []
      3.times do
        threads = Array.new(4) { Thread.new { serve(0.5, made) } }
        GC.compact if GC.respond_to?(:compact)
        child = fork { within(request("GET /child")) { serve(0.1, []) } and exit!(0) }
        threads.each(&:join)
        made << Process.wait2(child).last.exitstatus
      end
      finish made: made.size, failed: made.count { |one| ![0, 1].include?(one) }
    RUBY
    expect(run.report[:failed]).to eq(0)
    found = run.totals(:sample__stats, :request)
    expect(found.keys.grep(%r{GET /[a-t]\z}).size).to be > 10
  end
end
