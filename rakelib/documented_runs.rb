# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "documents"

# Runs the commands that pages show (see Documents for what a page says of each block), as root,
# with the real bpftrace. The programs are those of this checkout: `probescope` is exe/probescope,
# `venv/bin/probescope` the package in python/, and sudo does nothing.
module DocumentedRuns
  # A command failed, or did not end.
  Failure = Class.new(StandardError)

  # Of one page: a folder with examples/, and the programs that its blocks have started.
  class Session
    # A tracer without a time limit runs until Ctrl-C, which it gets after so many seconds.
    UNTIL_CTRL_C =
      /\b(?:bpftrace|probescope (?:trace|stat|flow|otel))\b(?!.* (?:-d|--seconds|--top|--help)\b)/
    SECONDS_OF_TRACE = 8
    # What installs compiles, so it may take long on a busy machine.
    MOST_SECONDS = 600
    PID = /(?<=-p |attach )(?:PID|\d+)\b|\bPID\b/
    # Where the READMEs of the applications have them listen.
    URL = %r{http://127\.0\.0\.1:929[23]}

    def initialize(folder)
      @folder = folder
      @started, @applications = [], []
      FileUtils.mkdir_p("#{folder}/bin")
      script("bin/sudo", 'exec "$@"')
    end

    # Returns [[command, pid, output], ...] of the block's commands in the foreground.
    def run(block)
      block.clauses.key?("in a checkout") ? check_out : lay_out
      use(block.program) if block.program
      *all, last = block.commands.reject { |command| @applications.any? && command.background? }
      [*all.map { |command| execute(command.line, 0) }, execute(last.line, block.status)].compact
    end

    # Ends what runs.
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

    # What is installed there is installed in the folder.
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

    # The program runs until a block uses another one.
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

    # Puma or gunicorn, under load.
    def start_application(program)
      applications = {"examples/rack_app" => Support::RackApp, "examples/flask_app" => Support::FlaskApp}
      application = applications.fetch(program).new
      @applications << application
      application.ready
      @pid, @url = application.pid, application.url
      @applications << application.load(seconds: 3600)
    end

    # Returns nil of a program that goes on.
    def execute(line, status)
      command = line.gsub(PID) do
        @pid || raise(Failure, "`#{line}`: no program runs that it could be asked of")
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

    # Waits until the program says that it is ready. Returns its process id, which it prints or has.
    def background(command)
      reader, pid = spawn("exec env #{command}")
      @started << pid
      told = +""
      reader.each_line { |line| (told << line).match?(/^ready$/) && break }
      raise Failure, "`#{command}` does not start:\n#{told}" unless told.match?(/^ready$/)

      Thread.new { IO.copy_stream(reader, File::NULL) }
      @pid = (told[/\bpid (\d+)/, 1] || pid).to_i
    end

    # Where no pipe is given for it, stderr goes where stdout goes.
    def spawn(command, err: nil)
      reader, writer = IO.pipe
      pid = Process.spawn(environment, "bash", "-c", command,
                          in: File::NULL, out: writer, err: err || writer, chdir: @folder, pgroup: true,
                          unsetenv_others: true)
      [writer, err].compact.each(&:close)
      [reader, pid]
    end

    # Returns the Process::Status, or nil.
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
      # Where nothing is installed, `require "probescope"` finds what a gem would be.
      library = File.exist?("#{@folder}/exe") ? nil : "#{Documents::ROOT}/lib"
      Support.plain_env.merge("PATH" => "#{@folder}/bin:#{gems}/bin:#{Support::RUBY_PATH}",
                              "GEM_HOME" => gems, "HOME" => @folder, "RUBYLIB" => library)
    end
  end

  module_function

  # The block is given each session's page.
  def in_session(folder)
    session = Session.new(folder)
    yield session
  ensure
    session&.stop
  end

  # Runs what can be run. Returns the failures as [place, message].
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

  # The applications of the pages live there, so that paths are as wide as the columns that they
  # stand in.
  HOME = "/srv/shop"

  # Puts new output into the blocks of a page that are to be retaken.
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
