# frozen_string_literal: true

module Support
  # A Ruby or Python process to trace, with probescope loaded from this checkout: a script of
  # examples/, or a few lines of Ruby.
  class Target < Child
    # source: path of a script (.rb or .py), or Ruby code. It prints a line "ready" if specs are to
    # wait for it (#ready).
    def initialize(source, *args, loaded: true, ruby: RbConfig.ruby, python: nil, options: [], env: {},
                   **child)
      in_python = source.end_with?(".py")
      @library = in_python ? Python.library : LIBRARY
      program = in_python || source.end_with?(".rb") ? [source] : ["-e", source, "--"]
      program.unshift("-r#{AUTO}") if loaded && !in_python
      env = Python.env(loaded: loaded).merge(env) if in_python
      super(in_python ? python || Python.interpreter : ruby, *options, *program, *args,
            env: Support.plain_env.merge(env), **child)
    end

    def ready
      await_line(/\Aready$/)
      self
    end

    # Returns the probescope_info of this process or of its forked child.
    def info(of = pid)
      (@infos ||= {})[of] ||= await("the library in process #{of}") { Info.of(of, @library) }
    end

    # Waits until the hooks of these probes are in.
    def await_on(*probes, of: pid)
      probes.each do |probe|
        await("#{probe} on in #{of}") { %i[on degraded].include?(info(of).state(probe)) }
      end
    end

    # Waits until the semaphores are 0 and the hooks are out.
    def await_off(*probes, of: pid)
      probes.each do |probe|
        await("#{probe} off in #{of}") do
          info(of).semaphore(probe).zero? && !%i[on degraded].include?(info(of).state(probe))
        end
      end
    end

    def state
      return super unless @infos

      super + @infos.map { |of, info| "probescope in #{of}: #{info.header}\n#{info.states}\n" }.join
    rescue SystemCallError, EOFError # the process has ended
      super
    end

    # Returns a program's own counts from now, for a program of examples/: {"documents" => 812.0,
    # "raises" => 215_992.0, "cpu" => 0.6, ...}.
    def counters
      reports = -> { out.scan(/^\w+=\d.*\n/) }
      seen = reports.call.size
      signal(:USR1)
      await("counters of #{self}") { reports.call[seen] }.scan(/(\w+)=([\d.]+)/).to_h.transform_values(&:to_f)
    end

    # Returns the CPU seconds, user and system, of the whole process.
    def cpu = File.read("/proc/#{pid}/stat").rpartition(")").last.split.values_at(11, 12).sum(&:to_i) / 100.0
  end
end
