# frozen_string_literal: true

require "spec_helper"
require "tempfile"
require "support/host_helpers"
require "probescope/tracing/elf"

RSpec.describe "Finding probescope_info in a file" do
  def with_elf(path) = File.open(path, "rb") { |io| yield Probescope::Tracing::Elf.new(io) }

  let(:binary) { Support::HostTarget.binary }

  it "returns the address that readelf shows" do
    expect(with_elf(binary) { |elf| elf.symbol("probescope_info") })
      .to eq(dynamic_symbol(binary, "probescope_info")[:address])
  end

  it "returns it after strip" do
    Dir.mktmpdir do |folder|
      stripped = File.join(folder, "stripped")
      system("strip", "-o", stripped, binary, exception: true)
      expect(with_elf(stripped) { |elf| elf.symbol("probescope_info") }).to be_positive
    end
  end

  it "does not match the tail of a longer name, and returns nothing for a file without it" do
    expect(with_elf(binary) { |elf| elf.symbol("info") }).to be_nil
    expect(with_elf("/proc/self/exe") { |elf| elf.symbol("probescope_info") }).to be_nil
  end

  it "returns nothing for a file that is not ELF or ends early" do
    Dir.mktmpdir do |folder|
      text = File.join(folder, "text")
      File.write(text, "not a library" * 10)
      expect(with_elf(text) { |elf| elf.symbol("probescope_info") }).to be_nil

      File.binwrite(text, File.binread(binary, 2048))
      expect { with_elf(text) { |elf| elf.symbol("probescope_info") } }.to raise_error(EOFError)
    end
  end

  it "reads the load address from the first segment" do
    expect(with_elf(binary) { |elf| elf.bias(0x7000_0000) }).to eq(0x7000_0000)
    Dir.mktmpdir do |folder|
      fixed = File.join(folder, "fixed")
      system("cc", "-no-pie", "-rdynamic", "-w", "-o", fixed, Support::HostTarget::SOURCE, exception: true)
      expect(with_elf(fixed) { |elf| elf.bias(0x400000) }).to eq(0)
    end
  end

  it "returns USDT probes, also of a library that is written at run time" do
    found = with_elf(Support::LIBRARY, &:probes)
    expect(found.map(&:provider).uniq).to eq(["probescope"])
    expect(found.map(&:name))
      .to match_array(IO.popen(["readelf", "-n", Support::LIBRARY], &:read).scan(/Name: (\S+)/).flatten)
    expect(with_elf("/proc/self/exe", &:probes)).to be_an(Array)
  end

  # GIVEN a library with some bytes changed, WHEN it is read, THEN it has these symbols and probes
  # or others, or ends early.
  it "trusts no field" do
    bytes = File.binread(Support::LIBRARY)
    places = [*0...64, *(bytes.unpack1("Q<", offset: 40)...bytes.bytesize)]
    random = Random.new(1)
    Tempfile.create do |file|
      500.times do
        changed = bytes.dup
        random.rand(1..3).times do
          changed.setbyte(places.sample(random: random), [0, 255, random.rand(256)].sample(random: random))
        end
        File.binwrite(
          file.path,
          changed.byteslice(0, [bytes.bytesize, random.rand(bytes.bytesize)].sample(random: random))
        )
        with_elf(file.path) { |elf| [elf.symbol("probescope_info") && elf.bias(0), elf.probes] }
      rescue EOFError
        nil
      end
    end
  end
end
