# frozen_string_literal: true

require "support/profiles"
require "support/schemas"

# Lines of stacks.bt become a recording, in bounded memory, and no figure is lost in silence.
RSpec.describe Probescope::Profile::Recorder do
  profiles = Support::Profiles

  def lines = Support::Profiles.lines("shop")

  # {"Shop#serve;Shop#pay" => ms}
  def paths(recording)
    found = Hash.new(0)
    recording.each_cell do |_, _, _, node, _, weight, _|
      found[recording.stack(node).reverse.map(&:function).join(";")] += weight / 1_000_000
    end
    found
  end

  it "has each path with its figures, by second and thread" do
    recording = profiles.recording(lines)
    expect(paths(recording)).to eq(
      "Shop#serve;Shop#pay;JSON.parse" => 600, "Shop#serve;Shop#pay" => 100, "Shop#serve" => 200,
      "Shop#serve;(garbage collection)" => 50, "Puma::Server#run" => 50,
      "Shop#serve;Shop#serve;Shop#<img src=x onerror=alert(1)>;;" => 100
    )
    buckets = Hash.new(0)
    recording.each_cell { |bucket, series, _, _, count, *| buckets[[bucket, series]] += count }
    expect(buckets).to eq([0, 0] => 45, [0, 1] => 25, [1, 0] => 40)
    expect(recording.series.map(&:thread_id)).to eq([71, 72])
    expect(recording.frames.select(&:own).map(&:path).uniq).to eq(["/srv/shop/app.rb"])
    expect(recording.frames.select(&:what).map(&:function)).to eq(["(garbage collection)"])
    expect(JSON.parse(JSON.generate(recording.metadata))).to fit_the_schema_of("recording")
  end

  it "does not depend on the order in which lines of a second arrive" do
    seconds = lines.slice_after(/\A=/).to_a
    mixed = seconds.flat_map { |second| second.shuffle(random: Random.new(7)) }
    expect(paths(profiles.recording(mixed))).to eq(paths(profiles.recording(lines)))
  end

  it "takes the first lines of a process that is chosen later, and names that only other processes gave" do
    recorder = Probescope::Profile::Recorder.new(Probescope::Profile::KINDS)
    chosen = []
    stacks = Probescope::Tracing::StackLines.new(recorder, process: ->(pid) { pid if chosen.include?(pid) })
    names, figures = lines.partition { |line| line.match?(/\A[fp] /) }
    names.each { |line| stacks.receive(line.sub(" 7 ", " 8 ")) }
    figures = figures.each.with_index(1).map { |line, i| line.sub(/ 7 \d+/, " 7 #{i}") }
    figures.first(3).each { |line| stacks.receive(line) }
    chosen << 7
    figures.drop(3).each { |line| stacks.receive(line) }
    stacks.rest(7, nil)
    expect([stacks.missing(7, nil), stacks.states.keys, recorder.lost_paths]).to eq([0, [7], 0])
    found = recorder.recording(profiles.metadata(recorder), [7])
    expect(paths(found)).to eq(paths(profiles.recording(lines)))
    expect(found.frames.map(&:path).uniq).to include("/srv/shop/app.rb")
  end

  it "counts lines that did not arrive, and paths without names, whose figures it keeps" do
    recorder = Probescope::Profile::Recorder.new(Probescope::Profile::KINDS)
    stacks = Probescope::Tracing::StackLines.new(recorder)
    lines.reject { |line| line.match?(/\Af 7 (4|5) /) }.each { |line| stacks.receive(line) }
    stacks.rest(7, nil)
    expect([stacks.missing(7, nil), recorder.lost_paths]).to eq([2, 2])
    recording = recorder.recording(profiles.metadata(recorder), [7])
    expect(paths(recording).values.sum).to eq(1100)
    expect(paths(recording)).to include("(name was lost)" => 700)
  end

  # [State of process 7, Recorder] after these lines
  def received(lines)
    recorder = Probescope::Profile::Recorder.new(Probescope::Profile::KINDS)
    stacks = Probescope::Tracing::StackLines.new(recorder)
    lines.each { |line| stacks.receive(line) }
    stacks.rest(7, nil)
    [stacks.states[7], recorder]
  end

  {"first" => [0, 2.0, 1.1, 1100], "middle" => [1, 2.0, 1.1, 1100], "last" => [2, 1.0, 0.7, 700]}
    .each do |which, (index, wall, cpu, weight)|
      it "knows its times, and which figures it has, though the #{which} end of a second was lost" do
        lost = lines.grep(/\A=/)[index]
        state, recorder = received(lines.reject { |line| line == lost })
        expect([state.wall_ns, state.cpu_ns]).to eq([(wall * 1e9).round, (cpu * 1e9).round])
        expect(state.weights).to eq(1 => weight * 1_000_000)
        expect(state.from - state.began).to eq(state.wall_ns)
        recording = recorder.recording(profiles.metadata(recorder), [7])
        expect(paths(recording).values.sum).to eq(weight)
      end
    end

  it "counts a caller without a name as lost, also one that ran nothing itself" do
    described = lines.grep(/\Af 7 16 /).first
    _, recorder = received(lines - [described])
    expect(recorder.lost_paths).to eq(1)
  end

  it "has no path of more frames than a process can have, and takes no long time for it" do
    chain = Array.new(20_000) { |i| "f 7 #{i + 2} #{i + 1} #{i + 2} 1 1 0 0\tf#{i + 1}" }
    weight = "s 7 20002 1 1 71 0 1 1000000 1"
    _, recorder = received(["= 7 1 0 1000000000 0 0 0 0 0 0", *chain, weight,
                            "= 7 20003 1 2000000000 1000000000 1 0 0 0 1"])
    recording = recorder.recording(profiles.metadata(recorder), [7])
    expect(recording.parents.size).to be <= described_class::MOST_DEPTH + 1
    expect(recording.total(0)).to eq([1, 1_000_000, 1])
  end

  it "ignores lines of another form, and paths that are their own callers" do
    odd = ["f 7 2 11 12 5 1 1 100\ta", "f 7 3 12 11 5 1 1 100\tb", "s 7 4 1 12 71 0 1 1000000 1",
           "s 7 x 1 12", "", "q", "f", "s 7 5 9 12 71 0 1 1000000 1",
           "= 7 6 1 2000000000 1000000000 1 0 0 0 1"]
    recording = profiles.recording([lines.first, *odd])
    expect(paths(recording)).to eq("a;b" => 1)
  end

  it "leaves out processes that were not asked for" do
    other = lines.map { |line| line.sub(/ 7 /, " 8 ") }
    recorder = profiles.recorder([*lines, *other])
    recording = recorder.recording(profiles.metadata(recorder), [7])
    expect(recording.series.map(&:pid).uniq).to eq([7])
    expect(paths(recording).values.sum).to eq(1100)
  end

  describe "with too many figures" do
    # Seconds of a process in which 10 threads have 100 paths each.
    def many(seconds)
      lines = ["= 7 1 0 1000000000 0 0 0 0 0 0"]
      add = ->(text) { lines << format(text, lines.size + 1) }
      100.times { |i| add["f 7 %d #{i + 1} #{i / 2} 1 1 0 0\tf#{i}"] }
      seconds.times do |second|
        10.times { |thread| 100.times { |i| add["s 7 %d 1 #{i + 1} #{thread + 1} 0 1 #{i + 1} 1"] } }
        add["= 7 %d #{second + 1} #{second + 2}000000000 #{second + 1}000000000 1 0 0 0 1"]
      end
      lines
    end

    def shortened(bound)
      recorder = profiles.recorder(many(8), most_cells: bound)
      [recorder, recorder.recording(profiles.metadata(recorder), [7]).total(0), recorder.truncated]
    end

    define_method(:profiles) { profiles }

    it "tells longer spans of time apart, then no threads, then charges small figures to callers" do
      whole = [8000, 8 * 10 * 5050, 8000]
      {10_000 => [], 4000 => [/spans of 2 s/], 1200 => [/spans of 8 s/], 800 => [/threads/],
       20 => [/threads/, /small figures/, /spans/]}.each do |bound, told|
        recorder, total, truncated = shortened(bound)
        expect(recorder.size).to be <= bound
        expect(total).to eq(whole)
        expect(truncated).to match(told.map { |text| match(text) })
      end
    end

    it "keeps threads and processes apart as long as there is room, and counts what has none" do
      recorder = profiles.recorder(many(1), most_series: 5)
      expect(recorder.truncated).to match([/threads are not told apart/])
      expect(recorder.recording(profiles.metadata(recorder), [7]).total(0)).to eq([1000, 10 * 5050, 1000])
      crowd = (1..7).flat_map { |pid| many(1).map { |line| line.sub(" 7 ", " #{pid} ") } }
      recorder = profiles.recorder(crowd, most_series: 5)
      expect(recorder.truncated).to match([/threads/, /more processes/])
      recording = recorder.recording(profiles.metadata(recorder), (1..7).to_a)
      expect(recording.series.map { |one| [one.pid, one.thread_id] }).to eq((1..5).map { |pid| [pid, 0] })
      expect(recording.total(0)).to eq([5000, 5 * 10 * 5050, 5000])
      expect(recorder.dropped).to eq(2000)
    end

    it "ends where it can charge no more to callers" do
      crowd = (1..7).flat_map { |pid| many(1).map { |line| line.sub(" 7 ", " #{pid} ") } }
      recorder = profiles.recorder(crowd, most_cells: 3)
      expect(recorder.size).to eq(7)
      expect(recorder.recording(profiles.metadata(recorder), (1..7).to_a).total(0).first).to eq(7000)
    end

    it "keeps no more names than the bound, of files neither" do
      files = Array.new(1000) { |i| "p 7 #{i + 2} #{i}\t#{"x" * 100}#{i}" }
      recorder = profiles.recorder(["= 7 1 0 1000000000 0 0 0 0 0 0", *files], most_text: 2000)
      expect(recorder.instance_variable_get(:@paths).size).to be <= 21
    end

    it "puts paths beyond the bound into one, and says so" do
      recorder = profiles.recorder(many(1), most_nodes: 20)
      recording = recorder.recording(profiles.metadata(recorder), [7])
      expect(recording.total(0)).to eq([1000, 10 * 5050, 1000])
      expect(recorder.truncated).to match([/\(more paths\)/])
      expect(recording.frames.map(&:function)).to include("(more paths)")
    end
  end
end
