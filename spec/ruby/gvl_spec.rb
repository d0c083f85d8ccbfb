# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

RSpec.describe "gvl__wait", :bpf do
  # Two threads request the VM lock all the time, for a known time.
  contention = <<~RUBY
    require "etc"
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    def busy(ends) = (n = 0; n += 1 while now < ends)
    def tid(thread) = thread.respond_to?(:native_thread_id) ? thread.native_thread_id : 0
    def fight(seconds)
      began = now
      threads = Array.new(2) { Thread.new { busy(began + (seconds * 1_000_000_000).to_i) } }
      ids = threads.map { |thread| sleep 0.001 until thread.native_thread_id; thread.native_thread_id }
      threads.each(&:join)
      [now - began, ids]
    end
  RUBY

  if RUBY_VERSION >= "3.2"
    it "measures how long each thread waited for the VM lock" do
      run = trace(<<~RUBY, { gvl__wait: %i[thread_id elapsed] })
        #{contention}
        Gate.on :gvl__wait
        wall, ids = fight(1.5)
        Gate.done wall: wall, ids: ids
      RUBY
      waits = run.events(:gvl__wait).group_by { |event| event[:thread_id] }
                 .transform_values { |events| events.map { |event| event[:elapsed] } }
      fought = waits.values_at(*run.report[:ids])
      # While one of the two threads runs, the other waits.
      expect(fought.sum(&:sum)).to be_between(run.report[:wall] * 0.7, run.report[:wall] * 1.1)
      expect(waits.values.flatten).to all(be >= 1000)
      expect(run.target.err).to be_empty
    end

    it "attaches and detaches under contention, and no forked child hangs" do
      target, = program(<<~RUBY)
        #{contention}
        threads = Array.new(3) { Thread.new { loop { 200.times { |i| i.to_s }; Thread.pass } } }
        $stdout.puts "ready"
        $stdout.flush
        Gate.on :gvl__wait
        children = 0
        20.times do
          pid = fork { Array.new(2) { Thread.new { busy(now + 2_000_000) } }.each(&:join) }
          children += 1 if Process.wait2(pid)[1].success?
        end
        $stdout.puts "forked"
        $stdout.flush
        Gate.off :gvl__wait
        Gate.done children: children
      RUBY
      target.ready
      attacher(target, "gvl__wait", cycles: 10).finish
      listener = attacher(target, "gvl__wait")
      listener.attached
      target.await_line(/\Aforked$/, within: 60)
      listener.finish
      report = JSON.parse(target.await_line(/\Areport (.*)/)[1])
      expect(report).to eq("children" => 20)
      expect(target.err).to be_empty
    end

    # GIVEN a child of a process that was traced. At the fork another thread of the process held the
    # lock of Ruby's list of hooks, which stays locked in the child.
    it "and a tracer of samples do not stop such a child" do
      skip "of another Ruby: samples use the same events from 3.3 on" if RUBY_VERSION < "3.3"
      headers = RbConfig::CONFIG.values_at("rubyhdrdir", "rubyarchhdrdir").map { |path| "-I#{path}" }
      directory = FileUtils.mkdir_p(File.join(Support::ROOT, "tmp", "ruby-#{RUBY_VERSION}")).first
      library = File.join(directory, "held_event.so")
      source = File.join(Support::ROOT, "spec/support/held_event.c")
      tool("cc", "-shared", "-fPIC", "-O2", "-D_GNU_SOURCE", *headers, "-o", library, source)
      target, = program(<<~RUBY)
        require #{library.dump}
        $stdout.sync = true
        Thread.new { loop { sleep 0.001 } }
        $stdout.puts "ready"
        Gate.on :gvl__wait
        HeldEvent.hold
        nil until HeldEvent.held?
        child = fork do
          $stdout.puts "child \#{Process.pid} \#{HeldEvent.held?}"
          Gate.on :sample__stats
          began = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
          nil until Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) > began + 0.3
          $stdout.puts "sampled \#{Probescope.status[:probes][:sample__stats].first}"
          exit!(0)
        end
        HeldEvent.release
        $stdout.puts "released"
        Process.wait(child)
        Gate.done status: $?.exitstatus
      RUBY
      target.ready
      attacher(target, "gvl__wait").attached
      child, held = target.await_line(/\Achild (\d+) (\w+)/).captures
      child = child.to_i
      begin
        expect(held).to eq("true")
        attacher(Struct.new(:pid).new(child), "sample__stats", wait: false).await_line(/\Aattached/)
        expect(target.await_line(/\Asampled (\w+)/)[1]).to eq("on")
      ensure
        Process.kill(:KILL, child) unless target.out.include?("sampled")
      end
      expect(JSON.parse(target.await_line(/\Areport (.*)/)[1])).to eq("status" => 0)
      expect(target.err).to be_empty
    end
  else
    it "is not served by this Ruby, and gives the reason" do
      target, = program("Gate.done")
      target.await_line(/\Areport/)
      expect(target.info.probes.fetch("gvl__wait")).to include(state: :unsupported, reason: /from 3\.2 on/)
    end
  end
end
