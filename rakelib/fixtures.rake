# frozen_string_literal: true

namespace :fixtures do
  desc "Record the output of this system's bpftrace for each program in spec/fixtures/bpftrace/VERSION " \
       "(as root, some minutes); PROGRAM=alloc records one"
  task :record do
    one = ["-e", "Recording what bpftrace prints #{ENV.fetch("PROGRAM")}"] if ENV["PROGRAM"]
    sh "rspec", "spec/fixtures/record.rb", *one
  end

  desc "Write the output of both hosts' commands on the recordings to spec/fixtures/golden; " \
       "read it before you commit it"
  task :golden do
    sh({"PROBESCOPE_GOLDEN" => "write"}, "rspec", "spec/commands/recorded_spec.rb")
  end
end
