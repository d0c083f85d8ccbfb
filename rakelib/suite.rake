# frozen_string_literal: true

desc "Run Ruby's own tests plain and attached, and compare (as root; SOURCES=of Ruby, RUBY=/path, FILES=test_array,test_hash)"
task suite: :compile do
  require_relative "../bench/ruby_suite"
  sources = ENV.fetch("SOURCES") { abort "SOURCES=directory of the sources of this version of Ruby" }
  suite = RubySuite.new(ruby: ENV.fetch("RUBY", RbConfig.ruby), sources: sources, files: ENV.fetch("FILES", "").split(","))
  differing = suite.differing
  differing.each do |file, tests|
    tests.each { |test, (plain, attached)| puts "#{file}: #{test}: #{plain.inspect}, attached #{attached.inspect}" }
  end
  abort "#{differing.size} files differ" unless differing.empty?
end
