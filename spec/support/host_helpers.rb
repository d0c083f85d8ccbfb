# frozen_string_literal: true

require "open3"

module Support
  # host_target.c beside this file: a process with the probes that says exactly what an example
  # wants to hear.
  module HostTarget
    SOURCE = File.join(__dir__, "host_target.c")
    BINARY = File.join(ROOT, "tmp/host_target")

    # Compiles it when it is missing or older than its source.
    def self.binary
      return BINARY if File.exist?(BINARY) && File.mtime(BINARY) >= File.mtime(SOURCE)

      FileUtils.mkdir_p(File.dirname(BINARY))
      out, status = Open3.capture2e("cc", "-O1", "-Wall", "-Wextra", "-rdynamic", "-o", BINARY, SOURCE)
      raise "cannot compile the host's target: #{out}" unless status.success?

      BINARY
    end

    # Its options stand in host_target.c. binary: a copy of it, for what has to be done to the file.
    def host_target(*options, binary: HostTarget.binary)
      child = keep(Child.new(binary, *options.map(&:to_s)))
      child.await_line(/\Aready$/)
      child
    end

    # probescope_info of a host_target, read by the specs' own reader.
    def info_of(process) = Info.of(process.pid, File.readlink("/proc/#{process.pid}/exe"))

    # Waits until it has flushed n times more, which it does while a tracer listens.
    def await_flushes(process, n)
      info = info_of(process)
      before = info.header[:flushes]
      await("#{n} flushes") { info.header[:flushes] >= before + n }
    end

    # Every bpftrace that traces this process.
    def tracers_of(pid)
      Dir["/proc/[0-9]*/cmdline"].select do |path|
        words = File.binread(path).split("\0")
        File.basename(words.first.to_s) == "bpftrace" && words.each_cons(2).include?(["-p", pid.to_s])
      rescue SystemCallError
        false
      end
    end
  end
end

RSpec.configure { |config| config.include Support::HostTarget }
