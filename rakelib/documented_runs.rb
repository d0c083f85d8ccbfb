# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "documents"

# Runs the commands that pages show, as root, with the real bpftrace. Documents describes what a
# page says about each block. The programs are those of this checkout: `probescope` is
# exe/probescope, `venv/bin/probescope` is the package in python/, and sudo does nothing.
module DocumentedRuns
  # A command has failed, or did not end.
  Failure = Class.new(StandardError)

  # The state of one page: a folder with examples/, and the programs that its blocks have started.
  class Session
    # A tracer without a time limit runs until Ctrl-C. It gets a Ctrl-C after SECONDS_OF_TRACE.
    UNTIL_CTRL_C =
      /\b(?:bpftrace|probescope (?:trace|stat|flow|otel))\b(?!.* (?:-d|--seconds|--top|--help)\b)/
    SECONDS_OF_TRACE = 8
    # An installation compiles, which may take long on a busy machine.
    MOST_SECONDS = 600
    PID = /(?<=-p |attach )(?:PID|\d+)\b|\bPID\b/
    # The address in the READMEs of the applications.
    URL = %r{http://127\.0\.0\.1:929[23]}

    def initialize(folder)
      @folder = folder
      @started, @applications = [], []
      FileUtils.mkdir_p("#{folder}/bin")
      script("bin/sudo", 'exec "$@"')
    end

    # Returns [[command, pid, output], ...] for the block's foreground commands.
    def run(block)
      block.clauses.key?("in a checkout") ? check_out : lay_out
      use(block.program) if block.program
      *all, last = block.commands.reject { |command| @applications.any? && command.background? }
      [*all.map { |command| execute(command.line, 0) }, execute(last.line, block.status)].compact
    end

    # Ends all running programs.
    def stop
      @started.each do |pid|
        Process.kill(:KILL, -pid)
        Process.wait(pid)
      end
      @applications.each(&:kill_all)
      @started, @applications, @used = [], [], nil
    end

    private

    def lay_out
      return if File.exist?("#{@folder}/examples")

      FileUtils.cp_r("#{Documents::ROOT}/examples", @folder)
      FileUtils.mkdir_p("#{@folder}/venv/bin")
      script("bin/probescope", "exec ruby #{Documents::ROOT}/exe/probescope \"$@\"")
      python = ENV.fetch("PYTHON", "python3")
      script("venv/bin/probescope",
             "PYTHONPATH=#{Documents::ROOT}/python exec #{python} -m probescope \"$@\"")
    end

    # Copies the checkout, because an installation writes into it.
    def check_out
      return if File.exist?("#{@folder}/exe")

      files = IO.popen(%w[git ls-files -z], chdir: Documents::ROOT, &:read).split("\0")
      files.select { |path| File.file?("#{Documents::ROOT}/#{path}") }.each do |path|
        FileUtils.mkdir_p(File.dirname("#{@folder}/#{path}"))
        FileUtils.cp("#{Documents::ROOT}/#{path}", "#{@folder}/#{path}")
      end
    end

    def script(path, line)
      File.write("#{@folder}/#{path}", "#!/bin/sh\n#{line}\n")
      File.chmod(0o755, "#{@folder}/#{path}")
    end

    # Starts the program, which runs until a block needs another one.
    def use(program)
      return if @used == program

      stop
      if File.directory?("#{Documents::ROOT}/#{program}")
        start_application(program)
      else
        python = program.end_with?(".py")
        background(python ? "venv/bin/probescope run #{program}" : "probescope run -- ruby #{program}")
      end
      @used = program
    end

    # Starts Puma or gunicorn, under load.
    def start_application(program)
      applications = {"examples/rack_app" => Support::RackApp, "examples/flask_app" => Support::FlaskApp}
      application = applications.fetch(program).new
      @applications << application
      application.ready
      @pid, @url = application.pid, application.url
      @applications << application.load(seconds: 3600)
    end

    # Returns nil for a background program.
    def execute(line, status)
      command = line.gsub(PID) do
        @pid || raise(Failure, "`#{line}` needs a PID, and no program runs")
      end
      command = command.gsub(URL) { @url }
      if Documents::Command.new(line: line).background?
        stop
        background(command.sub(/&\s*(#.*)?\z/, ""))
        return
      end

      output, errors, ended = foreground(command)
      unless ended == status
        raise Failure, "`#{command}` ended with #{ended.inspect}, not #{status}:\n#{output}#{errors}"
      end

      [line, @pid, output]
    end

    def foreground(command)
      interrupted = false
      errors, writer = IO.pipe
      reader, pid = spawn(command, err: writer)
      output, told = [reader, errors].map { |stream| Thread.new { stream.read } }
      limit = command.match?(UNTIL_CTRL_C) ? SECONDS_OF_TRACE : MOST_SECONDS
      unless (ended = wait(pid, limit))
        interrupted = Process.kill(:INT, -pid) && command.match?(UNTIL_CTRL_C)
        ended = wait(pid, 60) || raise(Failure, "`#{command}` does not end")
      end
      [output.value, told.value, interrupted && ended.exitstatus == 130 ? 0 : ended.exitstatus || ended.to_s]
    end

    # Waits until the program prints "ready". The pid is the one that it prints, or else that of its
    # process.
    def background(command)
      reader, pid = spawn("exec env #{command}")
      @started << pid
      told = +""
      reader.each_line { |line| (told << line).match?(/^ready$/) && break }
      raise Failure, "`#{command}` does not start:\n#{told}" unless told.match?(/^ready$/)

      Thread.new { IO.copy_stream(reader, File::NULL) }
      @pid = (told[/\bpid (\d+)/, 1] || pid).to_i
    end

    # Without a pipe in err, stderr goes to the same place as stdout.
    def spawn(command, err: nil)
      reader, writer = IO.pipe
      pid = Process.spawn(environment, "bash", "-c", command,
                          in: File::NULL, out: writer, err: err || writer, chdir: @folder, pgroup: true,
                          unsetenv_others: true)
      [writer, err].compact.each(&:close)
      [reader, pid]
    end

    # Returns the Process::Status, or nil when the time is up.
    def wait(pid, seconds)
      deadline = Support::Await.monotonic + seconds
      while Support::Await.monotonic < deadline
        ended = Process.wait2(pid, Process::WNOHANG)
        return ended.last if ended

        sleep 0.05
      end
    end

    def environment
      gems = "#{@folder}/gems"
      # In a folder without a checkout, `require "probescope"` finds the library as if the gem were
      # installed.
      library = File.exist?("#{@folder}/exe") ? nil : "#{Documents::ROOT}/lib"
      Support.plain_env.merge("PATH" => "#{@folder}/bin:#{gems}/bin:#{Support::RUBY_PATH}",
                              "GEM_HOME" => gems, "HOME" => @folder, "RUBYLIB" => library)
    end
  end

  module_function

  # Yields a Session.
  def in_session(folder)
    session = Session.new(folder)
    yield session
  ensure
    session&.stop
  end

  # Runs every block that can be run. Returns the failures as [place, message].
  def check(pages, out: $stdout)
    pages.flat_map do |page|
      blocks = Documents.blocks(page)
      Dir.mktmpdir do |folder|
        in_session(folder) do |session|
          blocks.filter_map { |block| check_block(session, block, out) }
        end
      end
    end
  end

  def check_block(session, block, out)
    return out.puts("not run: #{block.place}: #{block.said}") unless block.run?

    session.run(block)
    out.puts("ran: #{block.place}: #{block.commands.map(&:line).join("; ")}")
  rescue Failure, Support::Await::Timeout => e
    out.puts("FAILED: #{block.place}")
    [block.place, e.message]
  end

  # The applications of the pages run there, so that paths have the width of the columns in the
  # pages.
  HOME = "/srv/shop"

  # Replaces the output in a page's blocks that are marked with `retaken`.
  def retake(page)
    text = Documents.read(page)
    blocks = Documents.blocks(page).select(&:retaken?)
    again = in_home do
      in_session(HOME) do |session|
        blocks.reduce(text) { |before, block| retaken(before, session, block) }
      end
    end
    File.write(File.join(Documents::ROOT, page), again) if again != text
  end

  def in_home
    FileUtils.mkdir_p(File.dirname(HOME))
    Dir.mkdir(HOME)
    begin
      yield
    ensure
      FileUtils.rm_rf(HOME)
    end
  end

  def retaken(text, session, block)
    runs = session.run(block).to_h { |line, pid, output| [line, [pid, output]] }
    new = block.commands.map do |command|
      pid, output = runs.fetch(command.line, [nil, command.output])
      line = pid ? command.line.sub(/(?<=-p )(?:PID|\d+)\b/, pid.to_s) : command.line
      "$ #{line}\n#{output.gsub(/ +$/, "")}"
    end
    text.sub("```console\n#{block.text}```") { "```console\n#{new.join}```" }
  end
end
