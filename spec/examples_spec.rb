# frozen_string_literal: true

# What the programs of the stories do without a tracer, in one language.
RSpec.shared_examples "the examples" do |suffix, documents:, checksum:|
  # Returns the CPU seconds for a fixed amount of work, the least of several runs, because other
  # programs use the machine too.
  def cpu_of(script, *options)
    Array.new(3) do
      run = target(script, *options, loaded: false)
      run.wait(within: 120)
      run.out[/cpu=([\d.]+)/, 1].to_f
    end.min
  end

  it "deepstack needs at least 30 % less CPU for the same work with the fix",
     full: "measures for minutes beside other tests" do
    broken = cpu_of("examples/deepstack#{suffix}", "--documents", documents)
    expect(cpu_of("examples/deepstack#{suffix}", "--documents", documents, "--fixed")).to be <= broken * 0.7
  end

  it "hotfuncs spends most of its CPU on the checksum, by its own clock" do
    run = target("examples/hotfuncs#{suffix}", "--parcels", "2000", "--clock", loaded: false)
    run.wait(within: 60)
    shares = run.out.scan(/^clock (\S+)=([\d.]+)s/).to_h.transform_values(&:to_f)
    expect(shares.keys.first).to eq(checksum)
    expect(shares[checksum] / run.out[/cpu=([\d.]+)/, 1].to_f).to be > 0.3
  end

  # Returns the counters of a program that was run to its end.
  def counted(script, *options)
    run = target("examples/#{script}", *options, loaded: false)
    run.wait(within: 120)
    run.out.scan(/(\w+)=([\d.]+)/).to_h.transform_values(&:to_f)
  end

  it "onelock ships one order at a time, and with the fix several, without waits for the lock" do
    before, fixed = [[], ["--fixed"]].map do |fix|
      counted("onelock#{suffix}", "--orders", "200", *fix)
    end
    expect(before.values_at("orders", "wall")).to match([200, be > 200 * 0.005])
    expect(before["ship_waits"]).to be > 100
    expect(before["ship_waited"] + before["find_waited"]).to be > before["wall"]
    expect(fixed["orders"]).to eq(200)
    expect(fixed["ship_waits"]).to be < 20
    expect(fixed["wall"]).to be < before["wall"] * 0.75
  end

  it "mkdir makes each folder once with the fix, and needs at least 15 % less CPU for it" do
    script = "mkdir#{suffix}"
    before, fixed = [[], ["--fixed"]].map do |fix|
      Array.new(3) { counted(script, "--records", "20000", *fix) }.min_by { |counts| counts["cpu"] }
    end
    expect(before.values_at("records", "mkdirs", "existed")).to eq([20_000, 40_000, 39_968])
    expect(fixed.values_at("records", "mkdirs", "existed")).to eq([20_000, 32, 0])
    expect(fixed["cpu"]).to be <= before["cpu"] * 0.85
  end

  it "mkdir stores the same with and without the fix" do
    stored = [[], ["--fixed"]].map do |fix|
      Dir.mktmpdir do |folder|
        counted("mkdir#{suffix}", "--records", "100", "--folder", folder, *fix)
        Dir.glob("**/*.csv", base: folder).sort.to_h { |path| [path, File.read(File.join(folder, path))] }
      end
    end
    expect(stored.uniq.size).to eq(1)
    expect(stored.first.keys).to include("station-15/2026-11-26/values.csv").and have_attributes(size: 16)
    expect(stored.first.values.sum { |text| text.lines.size }).to eq(100)
  end

  it "print their counters when they are stopped" do
    units = { "deepstack" => "documents", "hotfuncs" => "parcels", "onelock" => "orders",
              "mkdir" => "records" }
    units.each do |script, unit|
      example = target("examples/#{script}#{suffix}").ready
      expect(example.stop(:INT)).to be_success
      expect(example.out).to match(/^#{unit}=\d+ .*cpu=[\d.]+s wall=[\d.]+s$/)
    end
  end
end

RSpec.describe "The examples", :slow do
  it_behaves_like "the examples", ".rb", documents: "1500", checksum: "Crc32#of"

  describe "in Python", :python do
    it_behaves_like "the examples", ".py", documents: "200", checksum: "Crc32.of"

    it "count their exceptions exactly, and compute the same checksum with both functions" do
      Dir.mktmpdir do |folder|
        File.write(File.join(folder, "counted.py"), <<~PYTHON)
          import collections, sys
          sys.path.insert(0, "examples")
          import deepstack, hotfuncs

          raised = collections.Counter()

          def trace(frame, event, argument):
              if event == "exception" and frame.f_code.co_name == "__init__":
                  raised[argument[0].__name__] += 1
              return trace

          print(len({hotfuncs.Crc32().of(b"parcel"), hotfuncs.FastCrc32().of(b"parcel")}))
          sys.argv[1:] = ["--documents", "20"]
          sys.settrace(trace)
          deepstack.main()
          sys.settrace(None)
          print(f"counted={raised['AttributeError']}")
        PYTHON
        both = target(File.join(folder, "counted.py"), loaded: false)
        both.wait
        expect(both.out).to start_with("1\n")
        expect(both.out[/raises=(\d+)/, 1]).to eq(both.out[/counted=(\d+)/, 1])
      end
    end
  end

  describe "deepstack.rb" do
    it "raises more than 60 frames deep, in its rescue modifier" do
      seen = target(<<~RUBY, options: ["-W0"], loaded: false)
        deepest = Hash.new(0)
        TracePoint.new(:raise) { |tp| deepest[[tp.path, tp.lineno]] += 1 if caller.size > 60 }.enable
        at_exit { p deepest.max_by(&:last) }
        ARGV.replace(%w[--documents 5])
        load "examples/deepstack.rb"
      RUBY
      seen.wait
      line = File.readlines(File.join(Support::ROOT, "examples/deepstack.rb")).rindex do |text|
        text.include?("(str.string rescue str)")
      end
      expect(seen.out).to match(/deepstack\.rb", #{line + 1}\], \d{3,}\]/)
    end

    it "counts its raises exactly" do
      raises = target(<<~RUBY, loaded: false)
        count = 0
        TracePoint.new(:raise) { |tp| count += 1 if NoMethodError === tp.raised_exception }.enable
        at_exit { puts "counted=\#{count}" }
        ARGV.replace(%w[--documents 20])
        load "examples/deepstack.rb"
      RUBY
      raises.wait
      expect(raises.out[/raises=(\d+)/, 1]).to eq(raises.out[/counted=(\d+)/, 1])
    end
  end

  describe "hotfuncs.rb" do
    it "computes the same checksum with both functions" do
      both = target(<<~RUBY, "--parcels", "1", loaded: false)
        require "./examples/hotfuncs"
        p [Crc32.new.of("parcel"), FastCrc32.new.of("parcel")].uniq.size
      RUBY
      both.wait
      expect(both.out).to end_with("\n1\n")
    end
  end
end
