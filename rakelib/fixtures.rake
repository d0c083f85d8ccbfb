# frozen_string_literal: true

module Fixtures
  FOLDER = "spec/fixtures/bpftrace"
  # Those of .ci/full, each with a bpftrace of its own.
  SUITES = %w[trixie sid noble].freeze

  extend Rake::FileUtilsExt

  module_function

  # program: nil for all.
  def record(program)
    sh "rspec", "spec/fixtures/record.rb", *(["-e", "Recording what bpftrace prints #{program}"] if program)
  end

  # Records in a copy of this checkout on another system, and brings home what is there then.
  def record_on(suite, program)
    setting = "PROGRAM=#{program} " if program
    sh({"PROBESCOPE_COPY" => "fixtures"}, ".ci/chroot", suite, "sh", "-c",
       "bin/setup specs && #{setting}${RUBY:-ruby} -S bundle exec rake fixtures:record")
    chroots = ENV.fetch("PROBESCOPE_CHROOTS", "/var/tmp/probescope-chroots")
    cp_r "#{chroots}/#{suite}/srv/probescope-fixtures/#{FOLDER}", File.dirname(FOLDER)
  end
end

namespace :fixtures do
  desc "Record the output of this system's bpftrace for each program in spec/fixtures/bpftrace/VERSION " \
       "(as root, some minutes; PROGRAM=alloc records one; ALL=1 also in a chroot for each other bpftrace)"
  task :record do
    program = ENV.fetch("PROGRAM", nil)
    Fixtures.record(program)
    Fixtures::SUITES.each { |suite| Fixtures.record_on(suite, program) } if ENV["ALL"] == "1"
  end

  desc "Write the output of the commands of gem and wheel on the recordings to spec/fixtures/golden; " \
       "read it before you commit it"
  task :golden do
    sh({"PROBESCOPE_GOLDEN" => "write"}, "rspec", "spec/commands/recorded_spec.rb")
  end
end
