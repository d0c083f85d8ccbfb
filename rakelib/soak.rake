# frozen_string_literal: true

desc "Attach and detach 10,000 times under load, and check whether the process grows " \
     "(as root; CYCLES=1000 for a short one)"
task soak: :compile do
  ruby "bench/soak.rb"
end
