# frozen_string_literal: true

# The story's two programs: what they promise by themselves, and what the command says about them.
RSpec.describe "The examples" do
  # CPU seconds for a fixed amount of work, the least of several runs: the machine has other things to do.
  def cpu_of(script, *options)
    Array.new(3) do
      run = target(script, *options, loaded: false)
      run.wait(within: 120)
      run.out[/cpu=([\d.]+)/, 1].to_f
    end.min
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
      line = File.readlines(File.join(Support::ROOT, "examples/deepstack.rb")).rindex { |text| text.include?("(str.string rescue str)") }
      expect(seen.out).to match(/deepstack\.rb", #{line + 1}\], \d{3,}\]/)
    end

    it "needs at least 30 % less CPU for the same work when it is fixed" do
      broken = cpu_of("examples/deepstack.rb", "--documents", "1500")
      expect(cpu_of("examples/deepstack.rb", "--documents", "1500", "--fixed")).to be <= broken * 0.7
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
    it "spends most of its CPU on the checksum, by its own clock" do
      run = target("examples/hotfuncs.rb", "--parcels", "2000", "--clock", loaded: false)
      run.wait(within: 60)
      shares = run.out.scan(/^clock (\S+)=([\d.]+)s/).to_h.transform_values(&:to_f)
      expect(shares.keys.first).to eq("Crc32#of")
      expect(shares["Crc32#of"] / run.out[/cpu=([\d.]+)/, 1].to_f).to be > 0.3
    end

    it "computes the same checksum in both ways" do
      both = target(<<~RUBY, "--parcels", "1", loaded: false)
        require "./examples/hotfuncs"
        p [Crc32.new.of("parcel"), FastCrc32.new.of("parcel")].uniq.size
      RUBY
      both.wait
      expect(both.out).to end_with("\n1\n")
    end
  end

  it "print their counters when they are stopped" do
    [%w[deepstack documents], %w[hotfuncs parcels]].each do |script, unit|
      example = target("examples/#{script}.rb").ready
      expect(example.stop(:INT)).to be_success
      expect(example.out).to match(/^#{unit}=\d+ .*cpu=[\d.]+s wall=[\d.]+s$/)
    end
  end
end
