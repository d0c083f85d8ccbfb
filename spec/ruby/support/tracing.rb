# frozen_string_literal: true

require "yaml"
require "probescope/abi"

# Runs a program for the specs of the Ruby hooks. Provides the events that a real bpftrace printed,
# and the program's own figures.
module Tracing
  GATE = File.join(__dir__, "gate.rb")

  # One traced run. report is the argument of Gate.done. #events has one Hash for each event of a
  # probe.
  class Run
    attr_reader :target, :tracer, :report, :directory

    def initialize(target, tracer, directory, fields)
      @target = target
      @tracer = tracer
      @directory = directory
      @fields = fields
    end

    # Waits for the program's report, and until the tracer has printed all events before it. A
    # tracer prints late on a busy machine, so the times are those of the flushes.
    def finish(within: 240)
      @report = JSON.parse(@target.await_line(/\Areport (.*)/, within: within)[1], symbolize_names: true)
      reported = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      Support::Await.await("two flushes after the report of #{@target}") do
        flushes.count { |at| at > reported } >= 2
      end
      @out = @tracer.finish
      self
    end

    # Lets the program continue after Gate.open(name).
    def open(name) = FileUtils.touch(File.join(@directory, name.to_s))

    def events(probe) = sequence(probe)

    # Events of several probes, in the order in which they fired.
    def sequence(*probes)
      out.each_line(chomp: true).filter_map do |line|
        name, *values = line.split("\t", -1)
        probe = probes.find { |one| one.to_s == name }
        names = @fields.fetch(probe) if probe
        next unless probe && values.size == names.size

        names.zip(values).to_h do |field, value|
          [field, Tracing.string?(probe, field) ? value : Integer(value)]
        end
      end
    end

    # Sums of the rows of a statistics probe: {"Shop#pay" => {calls: 10, self: 1200}}. key: the
    # fields that identify a row.
    def totals(probe, key = @fields.fetch(probe).first)
      groups = events(probe).group_by { |event| key.is_a?(Array) ? event.values_at(*key) : event[key] }
      groups.transform_values do |rows|
        rows.map { |row| row.reject { |field, _| Tracing.string?(probe, field) || field == :line } }
            .reduce { |sum, row| sum.merge(row) { |_, a, b| a + b } }
      end
    end

    def out = @out || @tracer.out
    # Times of the flushes, in ns of the monotonic clock.
    def flushes = @tracer.out.scan(/^flushed\t(\d+)$/).map { |at,| Integer(at) }
  end

  module_function

  def string?(probe, field) = definition(probe, field).fetch("type") == "string"

  def definition(probe, field)
    found = probes.fetch(probe.to_s)
    fields = found["args"] + found.fetch("more", [])
    fields.find { |one| one["name"] == field.to_s } || raise("no #{field} in #{probe}")
  end

  def probes
    @probes ||= YAML.load_file(File.join(Support::ROOT, "providers/probescope.yml"), aliases: true)["probes"]
                    .to_h { |probe| [probe["name"], probe] }
  end

  # A program that prints these fields of these probes, one line an event: {function__stats:
  # %i[function calls]}.
  def text(fields)
    fields.map do |probe, names|
      format = [probe, *names.map { |name| string?(probe, name) ? "%s" : "%llu" }].join('\t')
      values = names.map { |name| value(probe, name) }
      flushed = ' printf("flushed\t%llu\n", nsecs);' if probe == :stats__done
      "usdt:*:probescope:#{probe} { printf(#{[%("#{format}\\n"), *values].join(", ")});#{flushed} }"
    end.join("\n")
  end

  def value(probe, name)
    abi = Probescope::ABI::PROBES.fetch(probe)
    place = abi[:args].index(name)
    place = place ? "arg#{place}" : "*(uint64*)(arg5+#{abi[:more].fetch(name)})"
    string?(probe, name) ? "str(#{place}, 64)" : place
  end

  # Methods for the examples.
  module Helpers
    # Writes a program to a file and starts it, without a tracer.
    def program(source, env: {}, options: [], args: [], ruby: RbConfig.ruby)
      directory = Dir.mktmpdir("probescope")
      (@directories ||= []) << directory
      path = File.join(directory, "app.rb")
      File.write(path, source)
      [target(path, *args, ruby: ruby, options: [*options, "-I#{Support::ROOT}/lib", "-r#{GATE}"],
                           env: { "GATE_DIRECTORY" => directory }.merge(env)), directory]
    end

    # Starts a program, waits for a line like `once`, and starts a tracer of these fields. Returns
    # the Run, with both running.
    def start(source, fields, once: nil, attach: [], tracer_env: {}, env: {}, **options)
      fields = { stats__done: %i[sequence rows dropped] }.merge(fields)
      target, directory = program(source, env: { "GATE_ALSO" => "stats__done" }.merge(env), **options)
      target.info
      target.await_line(once) if once
      others = attach.map { |probe| "usdt:*:probescope:#{probe} { @#{probe} = count(); }" }
      text = [Tracing.text(fields), *others].join("\n")
      Run.new(target, tracer(text, pid: target.pid, env: tracer_env), directory, fields)
    end

    # Like start, but waits for the end.
    def trace(source, fields, within: 240, **options)
      start(source, fields, **options).finish(within: within)
    end
  end
end

RSpec.configure do |config|
  config.include Tracing::Helpers
  config.after { @directories&.each { |directory| FileUtils.rm_rf(directory) } }
end
