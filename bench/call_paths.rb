# frozen_string_literal: true

# Measures what call paths cost a process whose stacks are deep and many: the share of its CPU time
# that looking takes, as the commands report it.
#
#     sudo bundle exec ruby bench/call_paths.rb [ROUNDS]      # 3 rounds by default, 2 minutes each
#
# One thread computes in stacks of 97 frames. In one process all of them are the same stack, in the
# other they are 60 stacks that share nothing but the outermost frames. In each second the process
# fires each frame of the paths that grew. Each round has every command once, for 5 seconds.
require "json"
require "open3"
require "tmpdir"
require_relative "../spec/support/paths"

module CallPaths
  COMMANDS = {"hot --by self" => %w[hot --by self], "hot" => %w[hot], "record" => %w[record]}.freeze
  RUBY = <<~'RUBY'
    require "probescope/auto"
    def spin = (n = 0; n += 1 while n < 3_000)
    def deep(n, k) = n.zero? ? spin : (k.zero? ? deep(n - 1, k) : deep(n - 1, k - 1))
    ways = Integer(ARGV[0])
    ways.times { |k| eval "def way#{k} = deep(95, #{k})" }
    loop { ways.times { |k| send("way#{k}") } }
  RUBY
  PYTHON = <<~PYTHON
    import sys
    import probescope
    probescope.install()
    def spin():
        n = 0
        while n < 3000: n += 1
    def deep(n, k):
        if n == 0: spin()
        elif k == 0: deep(n - 1, k)
        else: deep(n - 1, k - 1)
    for k in range(int(sys.argv[1])): exec(f"def way{k}(): deep(95, {k})")
    ways = [globals()[f"way{k}"] for k in range(int(sys.argv[1]))]
    while True:
        for way in ways: way()
  PYTHON

  module_function

  def measure(rounds)
    {"Ruby" => [{}, RbConfig.ruby, "-I#{Support::ROOT}/lib", "-e", RUBY],
     "Python" => [{"PYTHONPATH" => "#{Support::ROOT}/python"}, ENV.fetch("PYTHON", "python3"), "-c", PYTHON]}
      .each do |language, command|
      [1, 60].each { |ways| puts "#{language}, stacks: #{ways}; #{shares(command, ways, rounds).join("; ")}" }
    end
  end

  # Returns a text for each command: the shares of all rounds.
  def shares(command, ways, rounds)
    pid = Process.spawn(*command, ways.to_s)
    sleep 2 # its start
    found = Array.new(rounds) { COMMANDS.transform_values { |words| looking(pid, words) } }
    COMMANDS.keys.map { |name| "#{name}: #{found.map { |one| format("%.2f", one[name]) }.join(", ")} %" }
  ensure
    Process.kill(:KILL, pid)
    Process.wait(pid)
  end

  def looking(pid, words)
    Dir.mktmpdir do |folder|
      output = words.first == "record" ? ["-o", "#{folder}/a.pb.gz"] : []
      out, status = Open3.capture2(RbConfig.ruby, "#{Support::ROOT}/exe/probescope", *words, "-p", pid.to_s,
                                   "-d", "5", "--json", *output)
      abort "#{words.join(" ")} failed" unless status.success?
      JSON.parse(out)["processes"].first.fetch("looking_share") * 100
    end
  end
end

CallPaths.measure(Integer(ARGV.fetch(0, 3)))
puts "#{RUBY_DESCRIPTION}; load #{File.read("/proc/loadavg").split.first}"
