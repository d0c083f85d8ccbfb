# frozen_string_literal: true

require "yaml"

# The notes in the library, as any tracer reads them, read with binutils.
RSpec.describe "The notes of the extension" do
  definition = YAML.safe_load_file(File.join(Support::ROOT, "providers/probescope.yml"), aliases: true)
  let(:notes) { stapsdt_notes(Support::LIBRARY) }

  it "have one note for each probe of the definition, in the right provider" do
    expect(notes.map(&:name)).to match_array(definition["probes"].map { |probe| probe["name"] })
    expect(notes.map(&:provider).uniq).to eq([definition["provider"]])
  end

  it "have every argument in a register of the calling convention, 8 bytes unsigned" do
    known = { "x86_64" => %w[%rdi %rsi %rdx %rcx %r8 %r9], "aarch64" => %w[x0 x1 x2 x3 x4 x5] }
    registers = known.fetch(RbConfig::CONFIG["host_cpu"])
    definition["probes"].each do |probe|
      count = probe["more"] ? 6 : probe["args"].size
      note = notes.find { |n| n.name == probe["name"] }
      expect(note.arguments)
        .to eq(registers.first(count).map { |register| "8@#{register}" }.join(" ")), probe["name"]
    end
  end

  it "have a separate semaphore for each probe, two bytes in a writable segment of the file" do
    expect(notes.map(&:semaphore).uniq.size).to eq(notes.size)
    segments = tool("readelf", "-lW", Support::LIBRARY).scan(/LOAD\s+\S+\s+(\S+)\s+\S+\s+(\S+)\s+\S+\s+RW/)
    writable = segments.map { |start, size| start.hex...(start.hex + size.hex) }
    notes.each do |note|
      expect(writable).to include(satisfy { |range| range.cover?(note.semaphore) }), note.name
    end
  end

  # A kernel that replaces a nop5 with a call kills the children of a traced process:
  # docs/decisions/031-one-nop.md
  it "point at a one-byte nop without a five-byte nop after it",
     if: RbConfig::CONFIG["host_cpu"] == "x86_64" do
    code = File.binread(Support::LIBRARY)
    segments = tool("readelf", "-lW", Support::LIBRARY).scan(/LOAD\s+(\S+)\s+(\S+)\s+\S+\s+(\S+)/)
                                                       .map { |row| row.map(&:hex) }
    notes.each do |note|
      offset, start, = segments.find { |_, address, size| (address...(address + size)).cover?(note.location) }
      bytes = code.byteslice(note.location - start + offset, 6).unpack1("H*")
      expect(bytes).to match(/\A90(?!0f1f440000)/), "#{note.name}: #{bytes}"
    end
  end

  it "survive strip, and so does the exported symbol probescope_info" do
    Dir.mktmpdir do |dir|
      stripped = File.join(dir, "stripped.so")
      tool("strip", "-o", stripped, Support::LIBRARY)
      expect(stapsdt_notes(stripped)).to eq(notes)
      expect(dynamic_symbol(stripped, "probescope_info")).to include(type: "OBJECT")
      expect(dynamic_symbol(stripped, "probescope_info")[:size]).to be >= 280 + (160 * notes.size)
    end
  end

  it "are the only thing exported besides probescope_info, OpenTelemetry's thread context and Ruby's entry " \
     "point" do
    exported = tool("nm", "-D", "--defined-only", Support::LIBRARY).lines.map { |line| line.split.last }
    expect(exported).to contain_exactly("Init_probescope", "probescope_info", "otel_thread_ctx_v1")
  end
end
