# frozen_string_literal: true

# Runs the whole task on the measured Ruby: bundle, extension and benchmark.
def on_measured_ruby(task, script)
  other = ENV.fetch("RUBY", RbConfig.ruby)
  return ruby(script) if File.realpath(other) == File.realpath(RbConfig.ruby)

  Bundler.with_unbundled_env do
    sh other, "-S", "bundle", "exec", other, "-S", "rake", task, "RUBY=#{other}"
  end
end

desc "Measure the costs, compared with those of similar tools, and write docs/performance.md " \
     "(as root; RUBY=/path OUTPUT=page.md: another Ruby)"
task bench: :compile do
  on_measured_ruby("bench", "bench/overhead.rb")
end

namespace :bench do
  desc "Measure how long it takes to attach to 10,000 methods " \
       "(as root; RUBY=/path RUBY_OPTIONS=--yjit adds another Ruby)"
  task attach: :compile do
    sh RbConfig.ruby, "bench/attach.rb" # the script starts RUBY itself
  end

  desc "Measure how long it takes to install the hooks in Ruby programs " \
       "(as root; RUBY=/path CYCLES=200 BUSY=2 ONLY=\"a CPU loop;...\")"
  task hooks_in: :compile do
    sh RbConfig.ruby, "bench/hooks_in.rb" # the script starts RUBY itself
  end

  desc "Measure what it costs to fire a run-time probe in C " \
       "(as root; LIBSTAPSDT=/path/to/libstapsdt.so.0: also upstream's)"
  task :fire do
    ruby "bench/fire.rb"
  end

  desc "Measure what a method with a latency probe costs " \
       "(as root; RUBY=/path RUBY_OPTIONS=--yjit PYTHON=\"/path /path\": also these)"
  task latency: :compile do
    sh RbConfig.ruby, "bench/latency.rb" # the script starts RUBY itself
  end

  desc "Measure what request probes cost a request (as root; PYTHON=/path: this Python)"
  task requests: :compile do
    ruby "bench/requests.rb"
  end

  desc "Measure the costs in Python programs, and write them into docs/performance.md " \
       "(as root; PYTHON=\"/path /path\": these Pythons)"
  task :python do
    pythons = ENV.fetch("PYTHON", "python3").split
    pythons.each { |python| sh python, "setup.py", "-q", "build_ext", "--inplace" }
    path = ["python", *ENV["PYTHONPATH"]].join(":")
    sh({"PYTHONPATH" => path}, pythons.first, "bench/python.py", *pythons)
  end

  desc "Measure the costs in a web application under load, and write them into docs/performance.md " \
       "(as root; about five minutes)"
  task web: :compile do
    on_measured_ruby("bench:web", "bench/web.rb")
  end

  desc "Measure what commands that listen to the kernel cost: one event, and web applications under load " \
       "(as root; some 15 minutes; PASSES=1: a third of it)"
  task kernel: :compile do
    ruby "bench/kernel_events.rb"
    ruby "bench/kernel_web.rb"
  end

  desc "Compare instructions without a tracer, and a traced call, with another checkout " \
       "(as root; OTHER=/path; some 10 minutes)"
  task versions: :compile do
    ruby "bench/versions.rb"
  end
end
