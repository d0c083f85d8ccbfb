# frozen_string_literal: true

# Changes inputs of the readers of foreign processes and files (spec/hostile/corpus) at random, and compares
# the results of gem and wheel for each input:
#
#   ruby spec/hostile/fuzz.rb SECONDS [SEED]
#
# A case is an input that ends a reader, takes a second of CPU time or more than 96 MB, or gives
# different results in the two hosts. Cases are in tmp/fuzz. After a fix, a case belongs into the
# corpus.
require "fileutils"
require "io/wait"
require "json"

class ReadersFuzz
  CORPUS = File.join(__dir__, "corpus")
  CASES = File.expand_path("../../tmp/fuzz", __dir__)
  # Limit of CPU seconds for one input, and of seconds until a reader hangs.
  LIMIT = 1.0
  HANGS = 60.0
  MOST_BYTES = 1 << 16
  NUMBERS = [0, 1, 2, 7, 8, 11, 24, 40, 44, 64, 255, 256, 257, 4096, 0xffff, 1 << 20, 1 << 31, (1 << 32) - 1,
             1 << 63, (1 << 64) - 1].freeze
  # The commands that have each reader. Only the bridge reads process contexts, and it is Ruby.
  READERS = {"elf" => %i[ruby python], "maps" => %i[ruby python], "info" => %i[ruby python],
             "context" => %i[ruby], "recording" => %i[ruby python]}.freeze
  PROGRAMS = {ruby: [RbConfig.ruby, File.join(__dir__, "read.rb")],
              python: [ENV.fetch("PYTHON", "python3"), File.join(__dir__, "read.py")]}.freeze

  attr_reader :inputs, :cases

  # seed: seed of the random numbers.
  def initialize(seed)
    @random = Random.new(seed)
    @programs = {}
    @inputs = 0
    @cases = []
    @input = "/dev/shm/probescope-fuzz-#{Process.pid}"
    @corpus = READERS.keys.to_h do |reader|
      [reader, Dir[File.join(CORPUS, reader, "*")].sort.map { |path| File.binread(path) }]
    end
  end

  # Tries the corpus unchanged.
  def corpus
    @corpus.each { |reader, all| all.each { |bytes| try(reader, bytes) } }
  end

  def run(seconds)
    limit = now + seconds
    while now < limit
      reader = READERS.keys.sample(random: @random)
      try(reader, changed(@corpus.fetch(reader).sample(random: @random)))
    end
  end

  def close
    @programs.each_key { |name| stop(name) }
    FileUtils.rm_f(@input)
  end

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def try(reader, bytes)
    @inputs += 1
    File.binwrite(@input, bytes)
    answers = READERS.fetch(reader).to_h { |name| [name, ask(name, reader)] }
    why = answers.values.grep(/\Afailed/).first ||
          ("the commands differ: #{answers}" if answers.values.uniq.size > 1)
    keep(reader, bytes, why) if why
  end

  # Returns a command's result for the input as text, which is equal for equal values.
  def ask(name, reader)
    input, output, pid = @programs[name] ||= start(name)
    began = cpu(pid)
    input.puts("#{reader} #{@input}")
    return failed(name, "it hangs") unless output.wait_readable(HANGS)

    line = output.gets or return failed(name, "it ended")
    used = cpu(pid) - began
    return "failed: #{name} took #{used} s" if used > LIMIT

    JSON.generate(sorted(JSON.parse(line)))
  end

  # CPU seconds of a reader so far, user and system.
  def cpu(pid)
    File.read("/proc/#{pid}/stat").rpartition(")").last.split.values_at(11, 12).sum(&:to_i) / 100.0
  end

  def failed(name, why)
    stop(name)
    "failed: #{name}: #{why}"
  end

  def start(name)
    input, child_input = IO.pipe.reverse
    output, child_output = IO.pipe
    pid = Process.spawn(*PROGRAMS.fetch(name), in: child_input, out: child_output)
    [child_input, child_output].each(&:close)
    [input, output, pid]
  end

  def stop(name)
    input, output, pid = @programs.delete(name)
    [input, output].each(&:close)
    Process.kill(:KILL, pid)
    Process.wait(pid)
  end

  def sorted(value)
    case value
    when Hash then value.sort.to_h.transform_values { |one| sorted(one) }
    when Array then value.map { |one| sorted(one) }
    else value
    end
  end

  def keep(reader, bytes, why)
    FileUtils.mkdir_p(CASES)
    path = File.join(CASES, "#{reader}-#{bytes.hash.abs.to_s(16)}")
    File.binwrite(path, bytes)
    @cases << "#{path}: #{why[0, 2000]}"
    puts "FAILED: fuzz:readers: #{@cases.last}"
  end

  def changed(bytes)
    bytes = bytes.dup
    @random.rand(1..5).times { bytes = change(bytes) }
    bytes.byteslice(0, MOST_BYTES)
  end

  def change(bytes)
    at = @random.rand(bytes.bytesize + 1)
    case @random.rand(7)
    when 0 then bytes.byteslice(0, at)
    when 1 then put(bytes, at, [@random.rand(256)].pack("C"))
    when 2 then put(bytes, at / 4 * 4, [NUMBERS.sample(random: @random)].pack("L<"))
    when 3 then put(bytes, at / 8 * 8, [NUMBERS.sample(random: @random)].pack("Q<"))
    when 4 then put(bytes, at / 2 * 2, [NUMBERS.sample(random: @random)].pack("S<"))
    when 5 then bytes.byteslice(0, at) + @random.bytes(@random.rand(1..9)) + bytes.byteslice(at..)
    else
      part = bytes.byteslice(@random.rand(bytes.bytesize + 1), @random.rand(1..64)).to_s
      bytes.byteslice(0, at) + part + bytes.byteslice(at..)
    end
  end

  def put(bytes, at, part)
    bytes.bytesplice(at, part.bytesize, part)
  rescue IndexError, NoMethodError # before Ruby 3.2
    bytes.byteslice(0, at) + part + bytes.byteslice(at + part.bytesize..).to_s
  end
end

if $PROGRAM_NAME == __FILE__
  seed = Integer(ARGV.fetch(1) { Random.new_seed % 1_000_000 })
  fuzz = ReadersFuzz.new(seed)
  begin
    fuzz.corpus
    fuzz.run(Float(ARGV.fetch(0)))
  ensure
    fuzz.close
  end
  puts "fuzz: readers: #{fuzz.inputs} inputs from seed #{seed}, #{fuzz.cases.size} cases"
  exit fuzz.cases.empty?
end
