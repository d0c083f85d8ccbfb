# frozen_string_literal: true

# Prints what the gem's readers make of an input: a line of JSON for each line "READER PATH" on
# stdin. read.py does the same for the wheel.
$LOAD_PATH.unshift(File.expand_path("../../lib", __dir__))
require "json"
require "probescope/tracing/elf"
require "probescope/tracing/foreign"
require "probescope/tracing/info"
require "probescope/tracing/mappings"
require "probescope/message"
require "probescope/profile/diff"
require "probescope/profile/pprof_reader"
require "probescope/profile/tables"
require "probescope/otel/resource"

# The same limits as in the child of Tracing::Reader.
Encoding.default_external = Encoding::BINARY
Process.setrlimit(:AS, (File.read("/proc/self/statm").to_i * 4096) + (96 << 20))

module Read
  SYMBOL = "probescope_info"
  REFUSED = [EOFError, Probescope::Tracing::Misused, Probescope::Tracing::Refused,
             Probescope::Message::Malformed].freeze

  module_function

  def elf(path)
    File.open(path, "rb") do |io|
      elf = part { Probescope::Tracing::Elf.new(io) }
      next elf if elf == "refused"

      {symbol: part { elf.symbol(SYMBOL) }, probes: part { elf.probes.map(&:to_a) },
       bias: part { elf.symbol(SYMBOL) && elf.bias(0) }}
    end
  end

  def maps(path)
    File.open(path, "rb") do |io|
      Probescope::Tracing::Mappings.in_text(io, 1).map { |file| [file.path, file.range, file.start, *file.id] }
    end
  end

  # The struct is at offset 64.
  def info(path)
    File.open(path, "rb") do |io|
      info = Probescope::Tracing::Info.new(io, 64)
      known = info.snapshot
      probes = known[:probes].transform_values { |probe| probe.except(:name) }
      {**known, probes: probes, flushed: info.flushes}
    end
  end

  # What `convert` and `diff` show of a recording.
  def recording(path)
    profile = Probescope::Profile
    found = profile::PprofReader.read(path)
    tables = %w[own self total].map { |by| profile::Tables.new(found, by, top: 5) }
    diff = profile::Diff.new(found, found, by: "self", per: "cpu", min: 0.01)
    {fields: tables.map(&:fields), text: tables.map { |one| one.text.lines.map(&:chomp) },
     wholes: diff.kinds.map { |kind| [diff.wholes(kind), diff.rows(kind).size] }, short: diff.too_short}
  end

  # The child's attributes of a process context must be those that the exporter reads.
  def context(path)
    attributes = Probescope::Message.attributes(File.binread(path))
    seen = Probescope::Otel::Resource.published(Probescope::Message.resource(attributes).unpack1("H*"))
    raise "#{attributes} became #{seen}" unless seen.inspect == attributes.inspect

    Probescope::Otel::Resource.of({attributes: {},
                                   published: Probescope::Message.resource(attributes).unpack1("H*")}, nil)
    attributes.inspect
  end

  def part
    yield
  rescue *REFUSED
    "refused"
  end
end

$stdout.sync = true
while (line = $stdin.gets)
  reader, path = line.chomp.split(" ", 2)
  puts JSON.generate(Probescope::Tracing::Foreign.utf8(Read.part { Read.public_send(reader, path) }))
end
