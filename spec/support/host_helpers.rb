# frozen_string_literal: true

require "open3"

module Support
  # Runs host_target.c, a process with the probes that fires exactly what an example needs.
  module HostTarget
    SOURCE = File.join(__dir__, "host_target.c")
    BINARY = File.join(ROOT, "tmp/host_target")

    # Compiles it if it is missing or older than its source.
    def self.binary
      return BINARY if File.exist?(BINARY) && File.mtime(BINARY) >= File.mtime(SOURCE)

      FileUtils.mkdir_p(File.dirname(BINARY))
      out, status = Open3.capture2e("cc", "-O1", "-Wall", "-Wextra", "-pthread", "-rdynamic", "-o", BINARY,
                                    SOURCE)
      raise "cannot compile the host's target: #{out}" unless status.success?

      BINARY
    end

    # host_target.c describes its options. binary: a copy of the file, for examples that change the
    # file.
    def host_target(*options, binary: HostTarget.binary)
      child = keep(Child.new(binary, *options.map(&:to_s)))
      child.await_line(/\Aready$/)
      child
    end

    # Returns the probescope_info of a host_target, read by the specs' own reader.
    def info_of(process) = Info.of(process.pid, File.readlink("/proc/#{process.pid}/exe"))

    # Waits until it has flushed n more times. It flushes only under a tracer.
    def await_flushes(process, n)
      info = info_of(process)
      before = info.header[:flushes]
      await("#{n} flushes") { info.header[:flushes] >= before + n }
    end

    # Returns every bpftrace that traces this process.
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
