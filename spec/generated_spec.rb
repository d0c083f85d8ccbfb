# frozen_string_literal: true

require_relative "../rakelib/abi_generator"
require_relative "../rakelib/definition_generator"
require_relative "../rakelib/tracing_generator"
require_relative "../rakelib/info_generator"
require_relative "../rakelib/page_generator"
require_relative "../rakelib/commands_page"
require_relative "../rakelib/program_generator"
require_relative "../rakelib/schema_generator"
require_relative "../rakelib/syscalls_generator"

RSpec.describe "The files generated from providers" do
  # GIVEN the definitions, WHEN the file is generated again, THEN it equals the file in the
  # repository.
  [AbiGenerator, InfoGenerator, TracingGenerator, DefinitionGenerator, SyscallsGenerator].each do |generator|
    fresh = generator.new(File.read(File.join(Support::ROOT, generator::SOURCE)))
    generator::OUTPUTS.each do |path, method|
      it "#{path} is up to date (rake generate)" do
        expect(File.read(File.join(Support::ROOT, path))).to eq(fresh.public_send(method))
      end
    end
  end

  programs = ProgramGenerator.new(Support::ROOT)
  programs.outputs.each do |path, template|
    it "#{path}, from #{template}, is up to date (rake generate)" do
      expect(File.read(File.join(Support::ROOT, path))).to eq(programs.text(path))
    end
  end

  schemas = SchemaGenerator.new(File.read(File.join(Support::ROOT, SchemaGenerator::SOURCE)))
  schemas.commands.each do |command|
    it "#{SchemaGenerator.path(command)} is up to date (rake generate)" do
      expect(File.read(File.join(Support::ROOT, SchemaGenerator.path(command)))).to eq(schemas.text(command))
    end
  end

  it "#{PageGenerator::PATH} is up to date (rake generate)" do
    expect(File.read(File.join(Support::ROOT, PageGenerator::PATH)))
      .to eq(PageGenerator.new(Support::ROOT).text)
  end

  it "include every program: each has a template" do
    made = Dir.chdir(Support::ROOT) { Dir["providers/*.bt"] }
    expect(made).to match_array(programs.outputs.keys)
  end

  it "have templates that use names for arguments and fields, without arg2 and offsets" do
    literal = Dir[File.join(Support::ROOT, "providers/**/*.erb")].flat_map do |path|
      File.readlines(path).each_with_index.filter_map do |line, i|
        "#{path}:#{i + 1}: #{line}" if line.match?(/\barg\d/)
      end
    end
    expect(literal).to be_empty
  end

  describe "a template" do
    block = lambda do |body, probe = "exception__stats"|
      "usdt:$1:probescope:#{probe}\n/@on[pid] && args.line > 0/\n{\n  #{body};\n}\n"
    end

    it "turns arguments into positions and fields into offsets" do
      expect(
        programs.resolve(block["@a[str(args.type, 64)] = sum(args.raised) + args.depth_sum; $p = args.path"])
      )
        .to include("arg2 > 0/",
                    "@a[str(arg0, 64)] = sum(arg3) + *(uint64*)(arg5 + 16); $p = *(uint64*)arg5;")
    end

    it "fails with a name that the probe does not have, and with a number that is read as a string" do
      {"sum(args.dept_sum)" => /exception__stats has no dept_sum; it has type, file, .*depth_sum/,
       "str(args.depth_sum, 64)" => /depth_sum of exception__stats is a number/}.each do |body, message|
        expect { programs.resolve(block[body]) }.to raise_error(ProgramGenerator::Error, message)
      end
    end

    it "fails with an unknown probe, and with a field outside a probe" do
      expect { programs.resolve(block["1", "exception__stat"]) }
        .to raise_error(ProgramGenerator::Error, /no probe exception__stat$/)
      expect { programs.resolve("#{block["1"]}END\n{\n  print(args.line);\n}\n") }
        .to raise_error(ProgramGenerator::Error, "args.line is in no block of a probe")
    end
  end

  it "reject a field of probescope_info that would move others, or that C would place elsewhere" do
    info = File.read(File.join(Support::ROOT, InfoGenerator::SOURCE))
    longer = info.sub("type: text 16, at: 32", "type: text 24, at: 32")
    expect { InfoGenerator.new(longer) }
      .to raise_error(/version of probescope_info is at 48, and what comes before it ends at 56/)
    uneven = "#{info}  - {name: more, type: u32, at: 168, about: more}\n"
    expect { InfoGenerator.new(uneven) }
      .to raise_error(/C adds bytes at the end of a row of probe, where the last field ends at 172/)
  end

  # YAML takes the last one without a word.
  it "are made from definitions in which no key is twice" do
    paths = Dir[File.join(Support::ROOT, "{docs/schema,providers}/*.yml")]
    twice = paths.to_h do |path|
      mappings = Psych.parse_file(path).grep(Psych::Nodes::Mapping)
      keys = mappings.flat_map { |one| one.children.each_slice(2).map { |key, _| key.value }.tally.to_a }
      [File.basename(path), keys.select { |_, number| number > 1 }.map(&:first)]
    end
    expect(twice.values.flatten).to be_empty, twice.to_s
    expect(twice).to include("schemas.yml", "probescope.yml")
  end

  it "keep probescope_info well below the limits of gem and wheel" do
    %w[abi tracing/bounds tracing/info_layout].each { |name| require_relative "../lib/probescope/#{name}" }
    expect(Probescope::ABI::PROBES.size * 2).to be < Probescope::Tracing::Bounds::INFO_PROBES
    expect(Probescope::Tracing::InfoLayout::PROBE.values.last.first * 2)
      .to be < Probescope::Tracing::Bounds::INFO_ROW_BYTES
  end

  it "#{CommandsPage::PATH}, from the output of --help, is up to date (rake generate)" do
    expect(File.read(File.join(Support::ROOT, CommandsPage::PATH))).to eq(CommandsPage.text)
  end

  it "keep every probe readable in every bpftrace: six arguments at most" do
    require_relative "../lib/probescope/abi"
    Probescope::ABI::PROBES.each_value { |probe| expect(probe[:args].size).to be <= 5 }
  end
end
