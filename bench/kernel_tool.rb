# frozen_string_literal: true

require "json"

# A tool that listens to the kernel: a command of probescope, or what one would use instead. For
# bench/kernel_events.rb and bench/kernel_web.rb.
class KernelTool
  include Support::Await

  # The tool ended before it listened. The message is what it said.
  Refused = Class.new(StandardError)

  # label: a row's. arguments: of a command of probescope, or another program and its own; the process
  # ids follow. probe: what the command listens to; nil for another program. alone: whether the
  # program takes one process only.
  Tool = Struct.new(:label, :arguments, :probe, :alone, keyword_init: true) do
    def peer? = probe.nil?
  end

  def self.command(*arguments, probe: "function__here")
    Tool.new(label: "`#{arguments.join(" ")}`", arguments: arguments, probe: probe)
  end

  # The cost of the hooks alone, which each of the other commands has, too.
  CALLS = command("calls", probe: "function__stats")
  SYSCALLS = command("syscalls")
  OFFCPU = command("offcpu")
  WAITS = command("waits")
  GVL = command("gvl")
  STRACE = Tool.new(label: "`strace -c -f`", arguments: %w[strace -c -f -p])
  PERF = Tool.new(label: "`perf trace -s`", arguments: %w[perf trace -s -p])
  # That of libbpf-tools needs no headers of the kernel, and that of BCC does.
  OFFCPUTIMES = %w[offcputime offcputime-bpfcc].map do |name|
    Tool.new(label: "`#{name}`", arguments: [name, "-p"], alone: true)
  end.freeze

  def self.on(event) = command("on", event)

  # {label => why it does not run here}
  def self.refused = @refused ||= {}

  # Runs the block while the tool is attached to the processes, and returns its value. Returns nil if
  # the tool cannot be attached.
  def self.with(tool, pids, states, &block)
    new(tool, pids, states).with(&block)
  rescue Refused => e
    refused[tool.label] = e.message
    nil
  end

  # states: a Proc that takes a probe's name and returns its state in each process.
  def initialize(tool, pids, states)
    @tool = tool
    @pids = pids
    @states = states
  end

  # Yields the running children.
  def with
    @children = commands.map { |command| start(command) }
    await("#{@tool.label} attached", within: 180, every: 0.05) { check && listening? }
    value = yield @children
    finish
    value
  ensure
    @children&.each(&:kill_all)
    await("the hooks out", every: 0.02) { @states.call(@tool.probe).all?(:off) } unless @tool.peer?
  end

  private

  def start(command)
    Support::Child.new(*command)
  rescue Errno::ENOENT
    raise Refused, "not installed"
  end

  # The commands that run meanwhile. One of probescope's ends by a signal, long before its 600 s.
  def commands
    all = @pids.join(",")
    return (@tool.alone ? @pids.map(&:to_s) : [all]).map { |pids| [*@tool.arguments, pids] } if @tool.peer?

    [[RbConfig.ruby, Support::EXE, *@tool.arguments, "-p", all, "-d", "600", "--json"]]
  end

  def check
    ended = @children.reject(&:alive?)
    return true if ended.empty?

    ended.each(&:wait)
    raise Refused, reason(ended.flat_map { |child| (child.out + child.err).lines.map(&:strip) })
  end

  # The line that says why, up to the end of its first sentence: a command of probescope has it in its
  # first line, other programs anywhere.
  def reason(lines)
    line = @tool.peer? ? lines.grep(/unable|cannot|error|exception/i).first : lines.first
    said = (line || lines.last || "it printed nothing").delete_prefix("probescope: ")
    said.sub(/process \d+/, "the process")[/\A.*?(?=\. |\.?\z)/]
  end

  def listening?
    return @states.call(@tool.probe).all?(:on) unless @tool.peer?

    traced? || @children.all? { |child| events?(child.pid) }
  end

  # Whether strace has stopped all threads once.
  def traced?
    @pids.flat_map { |pid| Dir["/proc/#{pid}/task/*/status"] }.none? do |path|
      File.read(path).match?(/^TracerPid:\s+0$/)
    end
  end

  # Whether the process has had the same number of the kernel's events open for a second.
  def events?(pid)
    opened = Dir["/proc/#{pid}/fd/*"].count { |path| File.readlink(path).match?(/perf_event|bpf.link/) }
    @opened ||= {}
    number, since = @opened[pid]
    return monotonic - since > 1 && opened.positive? if number == opened

    @opened[pid] = [opened, monotonic]
    false
  rescue Errno::ENOENT
    false
  end

  def finish
    @children.each { |child| child.signal(:INT) }.each { |child| child.wait(within: 120) }
  end
end
