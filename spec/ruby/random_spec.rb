# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/tracing"

# PROBESCOPE_SEED=n repeats a program. PROBESCOPE_SEEDS=20 runs 20 programs.
RSpec.describe "a program that calls at random", :bpf do
  source = File.read(File.join(__dir__, "support/random_program.rb"))
  first = Integer(ENV.fetch("PROBESCOPE_SEED", Random.new_seed % 1_000_000))

  first.upto(first + Integer(ENV.fetch("PROBESCOPE_SEEDS", 1)) - 1) do |seed|
    it "has the same 100,000 calls in function__stats as in its own record (PROBESCOPE_SEED=#{seed})" do
      run = trace(source, { function__stats: %i[function calls self elapsed raised] },
                  args: [seed.to_s, "100000", "function__stats"])
      seen = run.totals(:function__stats).transform_values { |row| row.values_at(:calls, :raised) }
      own = run.report[:calls].transform_keys(&:to_s)
      differing = own.keys.union(seen.keys).reject { |name| own[name] == seen[name] }
      expect(differing.to_h { |name| [name, { own: own[name], seen: seen[name] }] }).to eq({})
      expect(own.sum { |_, (left, _)| left }).to be > 95_000
      expect(run.target.err).to be_empty
    end
  end

  # The tracer gets 16 MB a CPU, because it is slower than the program.
  it "fires an entry and a return for each of 6,000 calls, in order, with self + children = " \
     "elapsed (PROBESCOPE_SEED=#{first})" do
    run = trace(source, { function__entry: %i[function depth context_id],
                          function__return: %i[function depth context_id elapsed self outcome] },
                args: [first.to_s, "6000", "function__entry", "function__return"], env: { "KEEP" => "1" },
                tracer_env: { "BPFTRACE_PERF_RB_PAGES" => "4096" })
    events = run.sequence(:function__entry, :function__return)
    contexts = events.group_by { |event| event[:context_id] }.values
    seen = contexts.map do |context|
      context.map { |event| event.values_at(:function, :depth, :outcome).compact }
    end
    expect(seen.sum(&:size)).to be > 2 * 5_000
    expect(seen.sort_by(&:inspect)).to eq(run.report[:events].sort_by(&:inspect))
    expect(contexts.flat_map { |events| untrue(events) }).to eq([])
  end

  # Returns the calls of one context whose elapsed time is not self plus that of the calls in them.
  # Each call may lose a ns by rounding.
  def untrue(events)
    children = Hash.new { |hash, depth| hash[depth] = [] }
    events.select { |event| event[:elapsed] }.reject do |call|
      inside = children.delete(call[:depth] + 1).to_a
      children[call[:depth]] << call[:elapsed]
      (call[:elapsed] - call[:self] - inside.sum).abs <= inside.size + 2
    end
  end
end
