# frozen_string_literal: true

require_relative "../rakelib/abi_generator"
require_relative "../rakelib/commands_page"
require_relative "../rakelib/program_generator"
require_relative "../rakelib/schema_generator"

RSpec.describe "What is generated from providers/probescope.yml" do
  # GIVEN the definition alone, WHEN it is generated again, THEN it is what the repository holds.
  fresh = AbiGenerator.new(File.read(File.join(Support::ROOT, AbiGenerator::SOURCE)))

  AbiGenerator::OUTPUTS.each do |path, method|
    it "#{path} is up to date (rake generate)" do
      expect(File.read(File.join(Support::ROOT, path))).to eq(fresh.public_send(method))
    end
  end

  ProgramGenerator::OUTPUTS.each do |path, (template)|
    it "#{path}, from #{template}, is up to date (rake generate)" do
      expect(File.read(File.join(Support::ROOT, path))).to eq(ProgramGenerator.text(Support::ROOT, path))
    end
  end

  schemas = SchemaGenerator.new(File.read(File.join(Support::ROOT, SchemaGenerator::SOURCE)))
  schemas.commands.each do |command|
    it "#{SchemaGenerator.path(command)} is up to date (rake generate)" do
      expect(File.read(File.join(Support::ROOT, SchemaGenerator.path(command)))).to eq(schemas.text(command))
    end
  end

  it "#{CommandsPage::PATH}, from what --help says, is up to date (rake generate)" do
    expect(File.read(File.join(Support::ROOT, CommandsPage::PATH))).to eq(CommandsPage.text)
  end

  it "keeps every probe readable on every bpftrace: six arguments at most" do
    require_relative "../lib/probescope/abi"
    Probescope::ABI::PROBES.each_value { |probe| expect(probe[:args].size).to be <= 5 }
  end
end
