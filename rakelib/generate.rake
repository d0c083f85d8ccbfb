# frozen_string_literal: true

require_relative "abi_generator"
require_relative "definition_generator"
require_relative "commands_page"
require_relative "tracing_generator"
require_relative "info_generator"
require_relative "page_generator"
require_relative "program_generator"
require_relative "schema_generator"
require_relative "syscalls_generator"

desc "Generate the C header and sites, #{AbiGenerator::REFERENCE} and lib/probescope/abi.rb " \
     "from #{AbiGenerator::SOURCE}; probescope_info in three languages from #{InfoGenerator::SOURCE}; " \
     "the constants of gem and wheel from #{TracingGenerator::SOURCE}; " \
     "their tables of system calls from #{SyscallsGenerator::SOURCE}; " \
     "the programs from #{ProgramGenerator::SOURCES}; " \
     "the JSON Schemas and the tables of the commands from #{SchemaGenerator::SOURCE}; " \
     "#{PageGenerator::PATH} from #{PageGenerator::SOURCE}; " \
     "#{CommandsPage::PATH} from --help"
task :generate do
  root = File.expand_path("..", __dir__)
  AbiGenerator.write(root)
  InfoGenerator.write(root)
  TracingGenerator.write(root)
  SyscallsGenerator.write(root)
  ProgramGenerator.write(root)
  SchemaGenerator.write(root)
  DefinitionGenerator.write(root)
  PageGenerator.write(root)
  CommandsPage.write(root)
end
