# frozen_string_literal: true

require "open3"

module Support
  # Runs attacher.c, a tracer that attaches in milliseconds where bpftrace takes half a second.
  class Attacher < Child
    SOURCE = File.join(__dir__, "attacher.c")
    BINARY = File.join(ROOT, "tmp/attacher")

    # Compiles it if it is missing or older than its source.
    def self.binary
      return BINARY if File.exist?(BINARY) && File.mtime(BINARY) >= File.mtime(SOURCE)

      FileUtils.mkdir_p(File.dirname(BINARY))
      out, status = Open3.capture2e("cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", BINARY,
                                    SOURCE)
      raise "cannot compile the attacher: #{out}" unless status.success?

      BINARY
    end

    # cycles: attaches and detaches this many times; otherwise it stays attached until #detach or
    # #finish. wait: waits each time until the hooks are in or out. by_path: traces every process
    # that maps the library. random: a seed for raising and lowering single probes.
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

    # Each returns the figures of one step, {attach_ms: 8.1, hooked_ms: 31.0}, since the start of
    # the attach.
    def attached(within: 60) = figures(await_line(/\Aattached (.*)/, within: within)[1])

    def detach
      puts "detach"
      figures(await_line(/\Adetached (.*)/)[1])
    end

    # Ends the attacher and returns every cycle's figures. A cycle takes the kernel 0.1 s, or 3 s
    # with many tracers: attaches on the whole machine wait for each other, and each waits for
    # several grace periods of RCU.
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
