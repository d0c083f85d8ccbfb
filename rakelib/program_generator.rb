# frozen_string_literal: true

require "erb"
require_relative "abi_generator"
require_relative "syscalls_generator"

# Generates the bpftrace programs, providers/*.bt, from the templates beside them. A template is a
# program with two additions:
#
#   args.NAME           is that argument or field of the block's probe. It becomes, for example,
#                       arg3 or *(uint64*)(arg5 + 16). It is a number; read a string with
#                       str(args.NAME, 64). In the block of a tracepoint, the kernel's fields are
#                       args->NAME, which stay as they are.
#   <%= part "NAME" %>  is the text of providers/parts/NAME.bt.erb, which several programs share.
#
# One template makes several programs if they differ little. They differ in their probe, because
# bpftrace does not accept an argument of the program as the name of a probe; or one of them tells
# requests apart, and has one more key in each map; or they have the numbers of one machine's system
# calls.
class ProgramGenerator
  FOLDER = "providers"
  SOURCES = "#{FOLDER}/*.bt.erb".freeze
  BY_REQUEST = {"" => {by_request: false, at: "pid"},
                "_by_request" => {by_request: true, at: "pid, $request"}}.freeze
  by_request = %w[alloc exceptions hot offcpu stacks waits].to_h do |name|
    [name, BY_REQUEST.transform_keys { |suffix| "#{name}#{suffix}" }]
  end
  slow = [1, 10, 100].flat_map do |ms|
    BY_REQUEST.map { |suffix, values| ["slow#{ms}ms#{suffix}", {ms: ms, **values}] }
  end
  syscalls = {"" => {lines: false}, "_lines" => {lines: true}}.flat_map do |lines, values|
    BY_REQUEST.map { |suffix, more| ["syscalls#{lines}#{suffix}", {**values, **more}] }
  end
  on = {"on" => {frames: 1}, "on_stack" => {frames: 8}}.flat_map do |name, values|
    BY_REQUEST.map { |suffix, more| ["#{name}#{suffix}", {**values, **more}] }
  end
  waits_kernel = BY_REQUEST.to_h { |suffix, more| ["waits_kernel#{suffix}", {lock: false, **more}] }
  # {template => {program => values for the template}}. Every other template makes one program of
  # the same name.
  VARIANTS = {
    **by_request,
    "slow" => slow.to_h,
    "on" => on.to_h,
    "own" => {"hot_own" => {command: "hot", what: "functions"},
              "lines_own" => {command: "lines", what: "lines"}},
    "stat" => {"stat" => {light: false}, "light" => {light: true}},
    "waits_kernel" => {**waits_kernel, "gvl_kernel" => {lock: true, by_request: false}},
    "syscalls" => syscalls.to_h,
    "syscalls_files" => SyscallsGenerator::MACHINES.to_h { |one| ["syscalls_files_#{one}", {machine: one}] }
  }.freeze
  # BLOCK matches the start of a block, and PROBE the name of its probe, if that is one of
  # probescope's.
  BLOCK = /^(?=usdt:|tracepoint:|software:|interval:|BEGIN$|END$)/
  PROBE = /\Ausdt:\$1:probescope:(\w+)/
  FIELD = /(\bstr\()?\bargs\.(\w+)/

  Error = Class.new(StandardError)

  def self.write(root)
    generator = new(root)
    generator.outputs.each_key { |path| File.write(File.join(root, path), generator.text(path)) }
  end

  def initialize(root)
    @root = root
    probes = AbiGenerator.new(File.read(File.join(root, AbiGenerator::SOURCE))).probes
    @probes = probes.to_h { |probe| [probe.name, probe] }
  end

  # {program => its template}, as paths relative to the root.
  def outputs
    variants.to_h { |program, (template)| ["#{FOLDER}/#{program}.bt", "#{FOLDER}/#{template}.bt.erb"] }
  end

  # The text of a program.
  def text(path)
    program = File.basename(path, ".bt")
    template, values = variants.fetch(program)
    source = "#{FOLDER}/#{template}.bt.erb"
    resolve(Template.new(@root).render(source, name: "#{program}.bt", **values))
  rescue Error => e
    raise Error, "#{source}: #{e.message}"
  end

  # Replaces each args.NAME in a program. Raises Error.
  def resolve(program)
    program.split(BLOCK).map do |block|
      name = block[PROBE, 1]
      probe = name && (@probes[name] || raise(Error, "there is no probe #{name}"))
      block.gsub(FIELD) do
        string, field = Regexp.last_match.captures
        "#{string}#{place(probe, field, string: string)}"
      end
    end.join
  end

  private

  # {program => [template, values]}
  def variants
    @variants ||= Dir[File.join(@root, SOURCES)].sort.flat_map do |path|
      template = File.basename(path, ".bt.erb")
      VARIANTS.fetch(template, {template => {}}).map { |program, values| [program, [template, values]] }
    end.to_h
  end

  # The bpftrace expression for an argument or a field. string: whether the program reads it as a
  # string.
  def place(probe, name, string:)
    raise Error, "args.#{name} is in no block of a probe" unless probe

    field = [*probe.args, *probe.more].find { |one| one.name == name }
    unless field
      names = [*probe.args, *probe.more].map(&:name).join(", ")
      raise Error, "#{probe.name} has no #{name}; it has #{names}"
    end
    if string && field.type != "string"
      raise Error, "#{name} of #{probe.name} is a number, and str() reads what a string points to"
    end

    argument = probe.args.index(field) and return "arg#{argument}"
    offset = 8 * probe.more.index(field)
    offset.zero? ? "*(uint64*)arg5" : "*(uint64*)(arg5 + #{offset})"
  end

  # The methods that a template can call.
  class Template
    def initialize(root)
      @root = root
    end

    def render(path, **values)
      scope = binding
      values.each { |name, value| scope.local_variable_set(name, value) }
      erb = ERB.new(File.read(File.join(@root, path)), trim_mode: "-")
      erb.filename = path
      erb.result(scope)
    end

    private

    # The numbers of the system calls of this machine whose path is in this argument.
    def with_path(machine, argument)
      @calls ||= SyscallsGenerator.new(File.read(File.join(@root, SyscallsGenerator::SOURCE)))
      @calls.with_path(machine, argument)
    end

    # Renders a template in providers/parts with these local variables. indent: number of spaces.
    def part(name, indent: 0, **values)
      render("#{FOLDER}/parts/#{name}.bt.erb", **values).gsub(/^/, " " * indent)
    end
  end
end
