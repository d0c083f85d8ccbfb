# frozen_string_literal: true

require_relative "abi_generator"
require_relative "commands_page"
require_relative "program_generator"
require_relative "schema_generator"

desc "Generate the C header and sites, #{AbiGenerator::REFERENCE} and lib/probescope/abi.rb from #{AbiGenerator::SOURCE}, and the " \
     "programs from #{ProgramGenerator::SOURCES}; the JSON Schemas from #{SchemaGenerator::SOURCE}; #{CommandsPage::PATH} from --help"
task :generate do
  root = File.expand_path("..", __dir__)
  AbiGenerator.write(root)
  ProgramGenerator.write(root)
  SchemaGenerator.write(root)
  CommandsPage.write(root)
end
