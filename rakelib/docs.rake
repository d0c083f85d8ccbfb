# frozen_string_literal: true

require "fileutils"
require "open3"
require "tmpdir"

# Takes outputs that the documents show again: a block after `<!-- docs:runs PROGRAM -->`, PROGRAM as examples/deepstack.rb, that has
# `$ probescope COMMAND -p PID OPTIONS`, which may stand below the command that starts the program.
module DocumentedRuns
  # The applications of the documents live there, so that paths are as wide as the columns that they stand in.
  HOME = "/srv/shop"
  BLOCK = /(?<mark><!--\ docs:runs\ (?<program>\S+)\ -->\n```\n(?:\$\ .*\ &\n)?\$\ probescope\ (?<command>\w+)\ -p\ )\w+
           (?<options>[^#\n]*)(?<comment>.*\n)(?:.*\n)*?```\n/x

  module_function

  def update(document)
    text = File.read(document)
    again = text.gsub(BLOCK) do
      match = Regexp.last_match
      pid, output = run(match[:program], match[:command], match[:options].split)
      "#{match[:mark]}#{pid}#{match[:options]}#{match[:comment]}#{output.gsub(/ +$/, "")}```\n"
    end
    File.write(document, again) if again != text
  end

  def run(program, command, options)
    input, output = IO.pipe
    pid = Process.spawn(environment, *(program.end_with?(".py") ? ["python3"] : [RbConfig.ruby, "-r#{Dir.pwd}/lib/probescope/auto"]),
                        program.end_with?(".py") ? File.join(HOME, program) : program, out: output, chdir: HOME)
    output.close
    input.each_line { |line| break if line.start_with?("ready") }
    text, errors, status = Open3.capture3(RbConfig.ruby, "exe/probescope", command, "-p", pid.to_s, *options)
    raise errors unless status.success?

    [pid, text]
  ensure
    Process.kill(:KILL, pid)
    Process.wait(pid)
  end

  def environment = {"PYTHONPATH" => "#{Dir.pwd}/spec/support/python:#{Dir.pwd}/python", "RUBYOPT" => nil, "BUNDLE_GEMFILE" => nil}

  def in_home
    raise "#{HOME} is there already" if File.exist?(HOME)

    FileUtils.mkdir_p(HOME)
    FileUtils.cp_r("examples", HOME)
    yield
  ensure
    FileUtils.rm_rf(HOME) if File.exist?("#{HOME}/examples/deepstack.rb")
  end
end

namespace :docs do
  desc "Take outputs in README.md and docs/guide again, in those blocks that say which program of examples/ they are of; as root"
  task :runs do
    documents = FileList["README.md", "docs/guide/*.md"].select { |path| File.read(path).match?(DocumentedRuns::BLOCK) }
    DocumentedRuns.in_home { documents.each { |path| DocumentedRuns.update(path) } }
  end
end
