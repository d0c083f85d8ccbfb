# frozen_string_literal: true

module Support
  # Starts what an example needs and ends it with the example.
  module Processes
    Result = Struct.new(:status, :out, :err, keyword_init: true) do
      # With what it said instead, where that is none.
      def json
        JSON.parse(out)
      rescue JSON::ParserError
        raise "no JSON: #{self}"
      end

      def success? = status.success?
    end

    def target(...) = keep(Target.new(...))
    def tracer(...) = keep(Tracer.new(...))
    def attacher(...) = keep(Attacher.new(...))

    # The command, started: for what is done to it while it runs.
    def probescope_start(*args, env: {})
      keep(Child.new(RbConfig.ruby, EXE, *args.map(&:to_s), env: ENV.to_h.merge(env)))
    end

    # The command, run to its end.
    def probescope(*args, env: {}, within: 60)
      child = probescope_start(*args, env: env)
      status = child.wait(within: within)
      Result.new(status: status, out: child.out, err: child.err)
    end

    # process: a Target or the like. Some probes are not there on some versions of a language.
    def skip_unless_served(process, *probes)
      missing = probes.find { |probe| process.info.state(probe) == :unsupported }
      skip "#{missing} is not served there" if missing
    end

    def keep(child)
      (@processes ||= []) << child
      child
    end

    # Said where an example failed: a process that hangs tells why only while it lives.
    def tell_of_processes
      warn "What it had started:", @processes.map(&:state) if @processes
    end

    def stop_processes
      @processes&.reverse_each(&:kill_all)
      @processes = nil
    end
  end
end
