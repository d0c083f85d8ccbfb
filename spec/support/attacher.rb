# frozen_string_literal: true

require "open3"

module Support
  # The C attacher beside this file: a tracer that costs milliseconds where bpftrace costs half a
  # second.
  class Attacher < Child
    SOURCE = File.join(__dir__, "attacher.c")
    BINARY = File.join(ROOT, "tmp/attacher")

    # Compiles it when it is missing or older than its source.
    def self.binary
      return BINARY if File.exist?(BINARY) && File.mtime(BINARY) >= File.mtime(SOURCE)

      FileUtils.mkdir_p(File.dirname(BINARY))
      out, status = Open3.capture2e("cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", BINARY,
                                    SOURCE)
      raise "cannot compile the attacher: #{out}" unless status.success?

      BINARY
    end

    # cycles: n times in and out, else it stays attached until #detach or #finish. wait: each time
    # until the hooks are in and out. by_path: every process that maps the library. random: a seed,
    # by which single probes go in and out.
    def initialize(target, *probes, library: LIBRARY, cycles: nil, random: nil, wait: random.nil?,
                   by_path: false)
      options = []
      options += ["--cycles", cycles.to_s] if cycles
      options += ["--random", random.to_s] if random
      options += ["--info", format("%#x", target.info.address)] if wait
      options << "--by-path" if by_path
      @cycles = cycles || 0
      super(self.class.binary, *options, target.pid.to_s, library, *probes, stdin: true)
    end

    # Each returns the figures of one step: {attach_ms: 8.1, hooked_ms: 31.0}, counted from the
    # start of the attach.
    def attached(within: 60) = figures(await_line(/\Aattached (.*)/, within: within)[1])

    def detach
      puts "detach"
      figures(await_line(/\Adetached (.*)/)[1])
    end

    # Ends it; returns every cycle's figures. The kernel takes 0.1 s for a cycle, and 3 s where many
    # attach: on the whole machine one waits for the other, and each for several grace periods of
    # RCU.
    def finish(within: 30 + (10 * @cycles))
      close_stdin
      status = wait(within: within)
      raise "the attacher failed\n#{self}" unless status.success?

      cycles
    end

    def cycles = out.scan(/^cycle (.*)$/).flatten.map { |text| figures(text) }

    private

    def figures(text) = text.scan(/(\w+)=([\d.]+)/).to_h { |name, value| [name.to_sym, value.to_f] }
  end
end
