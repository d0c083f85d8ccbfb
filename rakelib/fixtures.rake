# frozen_string_literal: true

namespace :fixtures do
  desc "Record what this system's bpftrace prints for each program, into spec/fixtures/bpftrace/VERSION " \
       "(as root, some minutes); PROGRAM=alloc records one"
  task :record do
    one = ["-e", "Recording what bpftrace prints #{ENV.fetch("PROGRAM")}"] if ENV["PROGRAM"]
    sh "rspec", "spec/fixtures/record.rb", *one
  end

  desc "Write what the commands of both hosts make of the recordings into spec/fixtures/golden; " \
       "to be read before it is committed"
  task :golden do
    sh({"PROBESCOPE_GOLDEN" => "write"}, "rspec", "spec/commands/recorded_spec.rb")
  end
end
