# frozen_string_literal: true

require "spec_helper"
require "probescope/commands/hot"
require "probescope/tracing/by_own"
require "probescope/tracing/program"

# What a trace of call paths has seen, without a tracer.
RSpec.describe Probescope::Tracing::ByOwn do
  # frames: {[pid, id] => [parent, function, path, flags]}. weights: {[pid, id] => ms}.
  def result(frames, weights)
    key = ->(pid, id) { "#{pid},#{id}" }
    files = frames.values.map { |one| one[2] }.uniq
    numbers = files.each_with_index.to_h { |path, i| [path, 100 + i] }
    pids = weights.keys.map(&:first).uniq
    figures = weights.transform_keys { |one| key[*one] }
    paths = pids.product(files).to_h { |pid, path| [key[pid, numbers[path]], [numbers[path], path]] }
    maps = {
      "frame" => frames.to_h do |(pid, id), (parent, _, path, flags)|
        [key[pid, id], [id, parent, id, 1, flags, numbers[path]]]
      end,
      "name" => frames.to_h { |(pid, id), one| [key[pid, id], [id, one[1]]] },
      "file" => paths, "full_path" => paths,
      "weight" => figures.transform_values { |ms| ms * 1_000_000 }, "count" => figures,
      "wall_ns" => pids.to_h { |pid| [pid.to_s, 1_000_000_000] },
      "cpu_ns" => pids.to_h { |pid| [pid.to_s, 100_000_000 - pid] }
    }
    output = instance_double(Probescope::Tracing::Output, maps: maps, lost_events: 0)
    targets = pids.map { |pid| {pid: pid} }
    Probescope::Tracing::Result.new(output, {targets: targets, by_pid: false, notes: [], strangers: []},
                                    Probescope::Tracing::Program.path("hot_own.bt"))
  end

  def own(result) = Probescope::Tracing::Own.choose([], Probescope::Tracing::CallPaths.new(result).to_a)
  def definition = Probescope::Tracing::Definitions::ALL.fetch("hot")

  def report(result, own = own(result))
    Probescope::Commands::Hot::OwnReport.new(result, definition, own)
  end

  def shares(report) = [*report.rows, *report.rest].to_h { |row| [row[:function], row[:self_share]] }

  it "ends paths that are their own callers, and takes long ones" do
    frames = {[7, 1] => [2, "a", "/x.rb", 1], [7, 2] => [1, "b", "/x.rb", 1], [7, 3] => [3, "c", "/x.rb", 1]}
    20_000.times { |i| frames[[7, i + 10]] = [i + 11, "f#{i}", "/y.rb", 1] }
    seen = result(frames, [7, 1] => 1, [7, 3] => 2, [7, 10] => 4, [7, 0] => 8)
    paths = Probescope::Tracing::CallPaths.new(seen)
    expect(paths.weight).to eq(7_000_000)
    found = paths.nodes.find { |node| node.frame.function == "a" }
    expect(found.each_outwards.map { |node| node.frame.function }).to eq(%w[a b])
    callers = paths.to_a.each_with_index.select { |(_, parent, _), i| parent && parent >= i }
    expect(callers).to be_empty
  end

  it "charges builtins that nobody called to themselves, where nothing is the application's" do
    found = result({[7, 1] => [0, "Integer#times", "<internal:numeric>", 0],
                    [7, 2] => [0, "Lib.work", "/lib.rb", 0],
                    [7, 3] => [2, "Zlib.crc32", "<cfunc>", 0]}, [7, 1] => 30, [7, 2] => 20, [7, 3] => 50)
    expect(shares(report(found))).to include("Integer#times" => 0.3, "Lib.work" => 0.7)
  end

  it "has one choice of the application's files for all processes, also for one that has none of them" do
    found = result({[7, 1] => [0, "Shop#run", "/srv/shop.rb", 1], [8, 2] => [0, "Server#wait", "/lib.rb", 0]},
                   [7, 1] => 60, [8, 2] => 40)
    answer = Probescope::Tracing::Answer.new("hot", definition, found, by_pid: true) do |part|
      report(part, own(found))
    end
    rows = [*answer.shown.rows, *answer.shown.rest].map { |row| row.values_at(:pid, :function, :self_share) }
    expect(rows).to eq([[7, "Shop#run", 1.0], [8, nil, 1.0]])
    expect(answer.report.below(answer.shown))
      .to eq("process 8, outside of the application: 100.0 % (Server#wait 100.0 %)")
  end
end
