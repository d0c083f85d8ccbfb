# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"

# Each bad input gives two lines on stderr, the error and a next step, and nothing on stdout.
RSpec.describe "Bad input" do
  def refuse(*arguments, status: 1, env: {}, before: [])
    child = keep(Support::Child.new(*before, RbConfig.ruby, Support::EXE, *arguments.map(&:to_s),
                                    env: Support.command_env.merge(env)))
    expect(child.wait.exitstatus).to eq(status), child.to_s
    expect(child.out).to be_empty
    expect(child.err.lines).to match([/\Aprobescope: [^\n]+\n\z/, /\A  try: [^\n]+\n\z/])
    child.err
  end

  # Runs a command in its own mount namespace, after the script.
  def in_mounts(script) = ["unshare", "-m", "sh", "-c", "#{script}; exec \"$@\"", "sh"]

  # Runs a command as the user nobody, who may not use sudo.
  def as_nobody = %w[setpriv --reuid=65534 --regid=65534 --clear-groups]

  def skip_without_root = (skip "needs root" unless Process.uid.zero?)

  describe "on the command line" do
    it "is reported as a usage error", :slow do
      expect(refuse("hott", status: 2)).to include("there is no command")
      expect(refuse("hot", status: 2)).to include("-p PID is missing").and include("probescope ps")
      expect(refuse("hot", "-p", "ruby", status: 2)).to include("is no process id")
      expect(refuse("hot", "-p", "-1", status: 2)).to include("is no process id")
      expect(refuse("doctor", "-p", 1, "-p", 2, status: 2)).to include("one process at a time")
      expect(refuse("hot", "-p", 1, "-d", "0", status: 2)).to include("positive number of seconds")
      expect(refuse("hot", "-p", 1, "-d", "soon", status: 2)).to include("invalid argument: -d soon")
      expect(refuse("hot", "-p", 1, "--top", "-1", status: 2)).to include("--top")
      expect(refuse("hot", "-p", 1, "--frobnicate", status: 2)).to include("invalid option")
      expect(refuse("hot", "-p", 1, "more", status: 2))
        .to include('unexpected argument "more"; usage: probescope hot -p PID [options]')
      {"slow" => "--threshold", "otel" => "--slow", "flow" => "--min"}.each do |command, option|
        expect(refuse(command, "1ms", status: 2))
          .to include("unexpected argument \"1ms\"; a time is given with #{option}\n  try: #{option} 1ms\n")
      end
      expect(refuse("flow", "-p", 1, "--min", "soon", status: 2)).to include('"soon" is no time')
      expect(refuse("stat", "-p", 1, "-d", "0", status: 2)).to include("positive number of seconds")
      expect(refuse("slow", "-p", 1, "--threshold", "999us", status: 2))
        .to include("no probe fires for calls under 1ms")
      expect(refuse("slow", "-p", 1, "--threshold", "fast", status: 2))
        .to include('"fast" is no time').and include("--threshold 10ms")
      expect(refuse("slow", "-p", 1, "--function", "\xff*", status: 2)).to include("no valid text")
      expect(refuse("run", status: 2)).to include("which command?")
    end

    it "is printed without control characters" do
      expect(refuse("\e[31m\n", status: 2)).not_to include("\e")
    end

    it "is reported when it names a script or a program that does not exist" do
      expect(refuse("script", "nothing")).to include("there is no script")
      expect(refuse("run", "--", "/no/such/program")).to include("cannot run")
    end
  end

  describe "in the process", :bpf do
    it "is reported when the process does not exist" do
      expect(refuse("hot", "-p", 4_194_305)).to include("there is no process 4194305")
    end

    it "is reported when one of several processes has ended, with its number" do
      expect(refuse("hot", "-p", host_target.pid, "-p", 4_194_305)).to include("there is no process 4194305")
    end

    it "is reported when no process with the library has the name, with the names of those that have it" do
      host_target
      expect(refuse("hot", "--comm", "nobody"))
        .to match(/no process with probescope is named "nobody"; there are: .*host_target \(\d+\)/)
    end

    it "is reported when neither the process nor its children have the library" do
      bare = target("$stdout.sync = true; puts 'ready'; sleep", loaded: false).ready
      expect(refuse("hot", "-p", bare.pid, "--workers"))
        .to include("process #{bare.pid} and its children do not have probescope")
    end

    it "is reported when a Ruby has no probescope, with the way to load it" do
      bare = target("$stdout.sync = true; puts 'ready'; sleep", loaded: false).ready
      expect(refuse("hot", "-p", bare.pid))
        .to include("does not have probescope loaded").and include("probescope run -- COMMAND", "doctor")
      expect(refuse("hot", "-p", host_target.pid, "-p", bare.pid))
        .to include("process #{bare.pid} does not have probescope loaded")
    end

    it "is reported when a Python has no probescope, with the way to load it", :python do
      bare = keep(Support::Child.new(Support::Python.interpreter,
                                     "-c", "print('ready', flush=True); import time; time.sleep(600)"))
      bare.await_line(/ready/)
      expect(refuse("hot", "-p", bare.pid))
        .to include("pip install /path/to/checkout").and include("probescope run -- COMMAND")
      expect(refuse("hot", "-p", bare.pid, "--workers")).to include("pip install /path/to/checkout")
    end

    it "is reported by each command when the process refuses the probe or cannot serve it, with " \
       "the reason, before bpftrace starts" do
      refusing, unable = host_target("--state", 3), host_target("--state", 4)
      commands = {"calls" => "function__stats", "exceptions" => "exception__stats", "hot" => "stack__frame",
                  "lines" => "stack__frame", "alloc" => "object__stats", "gc" => "gc__done",
                  "gvl" => "gvl__wait",
                  "requests" => "request__done", "syscalls" => "function__here", "offcpu" => "function__here",
                  "on" => "function__here", "waits" => "function__here"}
      commands.each_with_index do |(command, probe), i|
        pids = [refusing.pid, unable.pid].rotate(i)
        event = ["software:cs"] if command == "on"
        named = i < 4 ? ["-p", pids[0]] : ["-p", pids[0], "-p", pids[1]]
        expect(refuse(command, *event, *named, "-d", 600))
          .to include("process #{pids[0]} does not serve #{probe}: as the spec asked")
      end
    end

    it "is reported when the library is too old for the probe" do
      expect(refuse("hot", "-p", host_target("--old").pid))
        .to include("does not have the probe sample__stats").and include("update it")
    end

    it "is reported when the process is stopped" do
      process = host_target
      process.signal(:STOP)
      expect(refuse("hot", "-p", process.pid))
        .to include("nothing is known of process #{process.pid}: it is stopped")
    end

    # On a busy machine ten thousand functions may take more than five seconds to get their hooks.
    # The spec stops the process for that time.
    it "is not reported when the hooks come in after five seconds of a longer interval, which is complete" do
      process = target("def work = 1; puts 'ready'; $stdout.flush; loop { work; sleep 0.01 }").ready
      process.signal(:STOP)
      command = probescope_start("calls", "-p", process.pid, "-d", 9, "--json")
      await("its semaphores", within: 60) { process.info.semaphore("stats__done").positive? }
      sleep(8) # longer than the five seconds
      process.signal(:CONT)
      expect(command.wait(within: 120)).to be_success, command.err
      expect(JSON.parse(command.out)["seconds"]).to be > 8
    end

    # The process makes one call into C that takes minutes and keeps the VM lock. No hook can come
    # in.
    it "is reported when a Ruby ran in C all the time" do
      process = target(<<~'RUBY').ready
        puts "ready"
        $stdout.flush
        "word".crypt("$6$rounds=999999999$salt")
      RUBY
      expect(refuse("calls", "-p", process.pid, "-d", 1))
        .to include("nothing is known of process #{process.pid}: its hooks never came in: it ran, " \
                    "and let none of them in ")
    end

    it "is reported when a Ruby slept in C all the time" do
      process = target(<<~'RUBY').ready
        require "fiddle"
        sleeping = Fiddle::Function.new(Fiddle.dlopen(nil)["poll"],
                                        [Fiddle::TYPE_VOIDP, Fiddle::TYPE_LONG, Fiddle::TYPE_INT],
                                        Fiddle::TYPE_INT, need_gvl: true)
        puts "ready"
        $stdout.flush
        loop { sleeping.call(nil, 0, 600_000) }
      RUBY
      expect(refuse("calls", "-p", process.pid, "-d", 1))
        .to include("nothing is known of process #{process.pid}: its hooks never came in: " \
                    "no thread of it ran")
    end
  end

  describe "on the machine" do
    it "is reported when there is no bpftrace, whatever PATH says" do
      skip_without_root
      hidden = in_mounts("mount --bind /dev/null \"$(readlink -f /usr/bin/bpftrace)\"")
      expect(refuse("hot", "-p", 1, before: hidden))
        .to include("there is no bpftrace in /usr/local/sbin").and include("apt install bpftrace")
    end

    it "is reported when bpftrace is older than 0.17" do
      skip_without_root
      Dir.mktmpdir do |folder|
        File.write(old = File.join(folder, "bpftrace"), "#!/bin/sh\necho bpftrace v0.14.0\n", perm: 0o755)
        before = in_mounts("mount --bind #{old} \"$(readlink -f /usr/bin/bpftrace)\"")
        expect(refuse("hot", "-p", 1, before: before)).to include("0.14.0, and 0.17 is the oldest")
      end
    end

    it "is reported when bpftrace is a file that others than root may change" do
      skip_without_root
      Dir.mktmpdir do |folder|
        FileUtils.cp("/bin/true", other = File.join(folder, "bpftrace"))
        File.chown(65_534, 65_534, other)
        before = in_mounts("mount --bind #{other} \"$(readlink -f /usr/bin/bpftrace)\"")
        expect(refuse("hot", "-p", 1, before: before))
          .to include("bpftrace belongs to user 65534").and include("chown root")
      end
    end

    it "is reported when the user has no privilege", :bpf do
      skip_without_root
      expect(refuse("hot", "-p", host_target.pid, env: {"HOME" => "/"}, before: as_nobody))
        .to match(/privilege to trace|needs root/)
    end

    it "is reported when root lacks the capabilities", :bpf do
      skip_without_root
      expect(refuse("hot", "-p", host_target.pid, before: %w[setpriv --bounding-set=-sys_admin,-bpf]))
        .to include("root lacks CAP_SYS_ADMIN")
    end

    it "is reported when tracefs is not mounted", :bpf do
      skip_without_root
      hidden = in_mounts("umount -q /sys/kernel/debug/tracing 2>/dev/null; umount -q /sys/kernel/tracing")
      expect(refuse("hot", "-p", host_target.pid, before: hidden))
        .to include("mount -t tracefs tracefs /sys/kernel/tracing")
    end

    it "is reported when the kernel has no uprobes", :bpf do
      skip_without_root
      hidden = in_mounts("mount -t tmpfs none /sys/bus/event_source/devices")
      expect(refuse("hot", "-p", host_target.pid, before: hidden)).to include("the kernel has no uprobes")
    end
  end
end
