# frozen_string_literal: true

# Formatting is a tool's job: each of these checks, and `rake lint:fix` applies what can be applied.
module Lint
  C_FILES = FileList["ext/**/*.{c,h}", "spec/support/*.c"].exclude("**/*.gen.*")
  SHELL_FILES = FileList["bin/*", ".ci/*"].select { |path| File.file?(path) && File.open(path, &:readline).match?(/sh$/) }
  # Versions differ in what they make of the same settings; only this one's word counts.
  CLANG_FORMAT = "14"

  def self.clang_format
    name = ["clang-format-#{CLANG_FORMAT}", "clang-format"].find { |tool| system("command -v #{tool} >/dev/null") }
    [name, name && `#{name} --version`.include?("version #{CLANG_FORMAT}.")]
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
      Support::Skips.tell("lint:c: it wants clang-format #{Lint::CLANG_FORMAT}")
    end
  end

  desc "shellcheck"
  task :shell do
    sh "shellcheck", "--external-sources", *Lint::SHELL_FILES, verbose: false
    puts "shellcheck: #{Lint::SHELL_FILES.size} files, no offenses"
  end

  desc "Let RuboCop and clang-format correct what they can"
  task :fix do
    sh "rubocop", "--autocorrect"
    sh Lint.clang_format.first, "-i", *Lint::C_FILES
  end
end

desc "All linters"
task lint: %w[lint:ruby lint:c lint:shell]
