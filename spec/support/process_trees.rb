# frozen_string_literal: true

module Support
  # Starts sibling processes, child processes and containers.
  module ProcessTrees
    # A small preforking server. It forks a worker for each line on stdin, and ends the newest one
    # at "end". Each worker calls Job#run 10 times every 10 ms, and raises once.
    PREFORKING = <<~RUBY
      class Job
        def run(n) = n + 1

        def fail
          raise ArgumentError
        rescue ArgumentError
          nil
        end
      end

      def worker
        job = Job.new
        loop do
          10.times { |n| job.run(n) }
          job.fail
          sleep 0.01
        end
      end

      $stdout.sync = true
      trap("CHLD", "IGNORE")
      workers = []
      puts "ready"
      while (order = $stdin.gets)
        case order.chomp
        when "fork" then puts "worker \#{(workers << fork { worker }).last}"
        when "end" then Process.kill(:KILL, workers.pop)
        end
      end
    RUBY

    # Returns the process, and the numbers of its workers.
    def preforking(count, **options)
      @tree_folder = Dir.mktmpdir
      script = File.join(@tree_folder, "preforking.rb")
      File.write(script, PREFORKING)
      master =
        target(script, stdin: true, env: {"PROBESCOPE_FUNCTIONS" => "#{@tree_folder}/**"}, **options).ready
      [master, Array.new(count) { another_worker(master) }]
    end

    def another_worker(master)
      seen = master.out.scan(/^worker (\d+)$/).size
      master.puts("fork")
      await("a worker") { master.out.scan(/^worker (\d+)\n/).flatten[seen] }.to_i
    end

    # Runs a shell script in its own mounts and PID namespace, like a container. Returns the Child.
    # The last command must print "ready". What follows `exec` is process 1 in there.
    def container(script, within: 20, **options)
      command = %w[unshare --mount --pid --fork --mount-proc --kill-child sh -ec]
      child = keep(Child.new(*command, script, **options))
      child.await_line(/\Aready$/, within: within)
      child
    end

    def children_of(pid)
      Dir.glob("/proc/#{pid}/task/*/children").flat_map { |path| File.read(path).split.map(&:to_i) }
    end

    # Returns the number, outside, of a container's first process.
    def inside(container) = await("the process in it") { children_of(container.pid).first }

    # Returns the bpftrace processes of a command.
    def bpftraces(command)
      children_of(command.pid).flat_map { |helper| children_of(helper) }.reject { |pid| reader?(pid) }
    end

    # Whether this is the child that reads foreign processes.
    def reader?(pid) = File.read("/proc/#{pid}/cmdline").start_with?("probescope: reader")

    # Returns the folder of links through which the command's bpftrace attaches.
    def link_folder(command)
      await("bpftrace of #{command}") do
        words = bpftraces(command).map { |pid| File.read("/proc/#{pid}/cmdline").split("\0") }.first
        words&.filter_map { |word| word[%r{\A(/run/probescope/\h+)/\*\.so\z}, 1] }&.first
      rescue SystemCallError
        nil
      end
    end
  end
end

RSpec.configure do |config|
  config.include Support::ProcessTrees
  config.after { FileUtils.rm_rf(@tree_folder) if @tree_folder }
end
