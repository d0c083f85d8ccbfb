# frozen_string_literal: true

require_relative "abi_generator"

desc "Generate the C header and sites, docs/probes.md and lib/probescope/abi.rb from #{AbiGenerator::SOURCE}"
task :generate do
  AbiGenerator.write(File.expand_path("..", __dir__))
end
