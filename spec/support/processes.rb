# frozen_string_literal: true

module Support
  # Starts the processes that an example needs, and ends them with the example.
  module Processes
    Result = Struct.new(:status, :out, :err, keyword_init: true) do
      # Raises with the output if that is not JSON.
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

    # Starts the command, for examples that act on it while it runs.
    def probescope_start(*args, env: {})
      keep(Child.new(RbConfig.ruby, EXE, *args.map(&:to_s), env: Support.command_env.merge(env)))
    end

    # Runs the command to its end.
    def probescope(*args, env: {}, within: 60)
      child = probescope_start(*args, env: env)
      status = child.wait(within: within)
      Result.new(status: status, out: child.out, err: child.err)
    end

    # process: a Target or the like. Some versions of a language do not serve some probes.
    def skip_unless_served(process, *probes)
      missing = probes.find { |probe| process.info.state(probe) == :unsupported }
      skip "#{missing} is not served there" if missing
    end

    def keep(child)
      (@processes ||= []) << child
      child
    end

    # Prints the state of the processes of a failed example, while a hanging process still lives.
    def tell_of_processes
      warn "What it had started:", @processes.map(&:state) if @processes
    end

    def stop_processes
      @processes&.reverse_each(&:kill_all)
      @processes = nil
    end
  end
end
