# frozen_string_literal: true

# Programs that count their work (spec/truth/programs), each with its own use of the VM's lock.
# `language`: a Truth::Language.
#
# On a busy machine, the time until hooks come in depends on other programs. So it is measured in
# the program's own units of work, of some ms each: the units between the moment when its watcher
# sees the tracer and the moment when its hooks are in. The time in which other programs keep the
# watcher from a CPU is subtracted.
RSpec.shared_examples "hooks come in" do |language|
  # [limit of units for half of the attaches, limit for each of them]. A thread of a crowd does a
  # unit every 80 ms, or 200 ms, and a burst of ten comes every 300 ms.
  bounds = {"cpu" => [10, 60], "system_calls" => [10, 60], "parked" => [20, 100], "crowd" => [1, 2],
            "served" => [1, 2], "bursts" => [5, 20], language.python? ? "tasks" : "fibers" => [10, 60]}
  attaches = ENV["PROBESCOPE_GATE"] ? 4 : 8 # the programs use the CPU all the time

  around { |example| Dir.mktmpdir { |folder| (@folder = folder) && example.run } }

  define_method(:library) { language.python? ? {library: Support::Python.library} : {} }

  # Returns the ns for which each thread of the library was ready to run without a CPU, by task.
  def kept_from_cpu(program)
    ours = Dir["/proc/#{program.pid}/task/*"].select do |task|
      File.read("#{task}/comm").start_with?("probescope")
    end
    ours.to_h { |task| [task, File.read("#{task}/schedstat").split[1].to_i] }
  end

  # Returns when the watcher saw the tracer, and when the hooks were in, in ns of CLOCK_MONOTONIC.
  def attach(program)
    before = kept_from_cpu(program)
    tracer = attacher(program, "exception__stats", **library).tap(&:attached)
    asked, came = program.info.header.values_at(:asked_ns, :hooks_in_ns)
    kept = kept_from_cpu(program).sum { |task, ns| ns - before.fetch(task, 0) }
    tracer.detach
    tracer.finish
    [asked, came, kept]
  end

  bounds.each do |temperament, (usual, longest)|
    it "before a program in #{temperament.tr("_", " ")} has done much work" do
      program =
        target(language.path("temperament"), temperament, "1", @folder, options: language.options).ready
      moments = Array.new(attaches) { attach(program) }
      program.stop
      ledger = Truth::Ledger.new(File.join(@folder, "#{program.pid}.json"))
      units = moments.map do |asked, came, kept|
        ledger.estimate("calls:step", asked, [came - kept, asked].max).round(1)
      end
      units.sort!
      expect(moments)
        .to all(satisfy("hooks that came after they were asked for") { |asked, came| came >= asked })
      expect(units[attaches / 2]).to be <= usual, "units of work until the hooks were in: #{units}"
      expect(units.last).to be <= longest, "units of work until the hooks were in: #{units}"
    end
  end
end
