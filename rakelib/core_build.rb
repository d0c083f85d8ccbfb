# frozen_string_literal: true

require "fileutils"
require "open3"
require "yaml"

# Compiles ext/core and ext/libstapsdt, without a language, into tmp/core/NAME, for their C tests.
class CoreBuild
  WARNINGS = %w[-std=c11 -D_GNU_SOURCE -DPS_CHECKS -O2 -g -Wall -Wextra -Wno-unused-parameter -Werror].freeze
  # Linked into every test, where they stand in for the tracer and for a VM.
  RECORDER = "ext/core/test/recorder.c"
  VM = "ext/core/test/test_vm.c"
  # Seconds. A program that hangs has failed. A program that takes 2 s alone took 91 s at a load of
  # 28, because it changes between two processes at each instruction.
  SECONDS = 600
  # Programs that run in parallel: they mostly wait.
  AT_A_TIME = 4

  # prefix: of the names of a cross compiler's tools. runner: the command that runs programs of
  # another CPU, which may be missing.
  def initialize(name, flags: [], prefix: "", runner: [])
    @directory = "tmp/core/#{name}"
    @name = name
    @prefix = prefix
    @runner = runner
    @flags = WARNINGS + flags + (native_x86? ? ["-mno-red-zone"] : [])
    FileUtils.mkdir_p(@directory)
  end

  def compiler? = found?(compiler)

  # Returns whether a program of this build starts. With the ThreadSanitizer of older compilers it
  # does not start if the kernel randomizes addresses by more than 28 bits (sysctl
  # vm.mmap_rnd_bits=28 helps; https://github.com/google/sanitizers/issues/1716).
  def runs?
    program = File.join(@directory, "empty")
    _, built = Open3.capture2e(compiler, *@flags, "-x", "c", "-o", program, "-",
                               stdin_data: "int main(void) { return 0; }")
    built.success? && Open3.capture2e(program).last.success?
  end

  # Builds and runs each test program, or only that of TEST: TEST=switching runs switching_test.c. Raises
  # at the end if a program failed.
  def test
    tests = Dir["ext/{core,libstapsdt}/test/#{ENV.fetch("TEST", "*")}_test.c"].sort
    raise "there is no #{ENV.fetch("TEST")}_test.c in ext/core/test and ext/libstapsdt/test" if tests.empty?

    objects
    results = at_a_time(tests) { |source| run(build(source)) }
    puts "core (#{@name}): #{tests.size} programs, #{results.count(false)} failed"
    raise "core tests failed" if results.include?(false)
  end

  # Checks the notes in the compiled library. There must be a note for every probe, with as many
  # operands as the probe has arguments.
  def check_notes(library = "libprobescope.so", *arguments)
    library = File.join(@directory, library)
    compile("-shared", "-fPIC", "-o", library, *arguments, *sources)
    text, = Open3.capture2e("readelf", "-n", "-W", library)
    notes = text.scan(/Name: (\S+)\s+Location:.*\s+Arguments: ?(.*)$/).to_h
    counts = notes.transform_values { |arguments| arguments.split.size }
    unless counts == expected
      raise "notes differ: #{counts.to_a - expected.to_a} #{expected.to_a - counts.to_a}"
    end

    puts "core (#{@name}): #{notes.size} notes in #{File.basename(library)}, " \
         "such as exception__raise(#{notes["exception__raise"]})"
  end

  # Does the same for the CPython extension, with the headers of this machine's Python. All sizes
  # are the same on both CPUs.
  def check_python_notes(python = ENV.fetch("PYTHON", "python3"))
    headers = Open3.capture2e(python, "-c",
                              "import sysconfig; print(sysconfig.get_path('include'))").first.chomp
    return puts("core (#{@name}): no headers of #{python}") unless File.exist?(File.join(headers, "Python.h"))

    # Writes a substitute for the pyconfig.h of the CPU, which Debian's pyconfig.h includes.
    of_cpu = ->(folder) { File.join(folder, @prefix.chomp("-"), File.basename(headers), "pyconfig.h") }
    FileUtils.mkdir_p(File.dirname(of_cpu[@directory]))
    pyconfig = Dir[of_cpu[File.dirname(headers)].sub("aarch64", "*")].first
    File.write(of_cpu[@directory], %(#include "#{pyconfig}"\n))
    check_notes("_native.so", "-fvisibility=hidden", "-fno-strict-aliasing",
                "-Wno-missing-field-initializers", '-DPROBESCOPE_VERSION="aarch64"', "-Iext/python",
                "-I#{headers}", "-I#{@directory}", *Dir["ext/python/*.c"])
  end

  private

  def compiler = @prefix.empty? ? ENV.fetch("CC", "gcc") : "#{@prefix}gcc"
  def native_x86? = @prefix.empty? && RbConfig::CONFIG["host_cpu"].match?(/x86_64|amd64/)
  def sources = (Dir["ext/{core/*,libstapsdt}/*.c"] - Dir["ext/core/test/*"]).sort

  # `timeout` exits with 124 if it has ended the program.
  def how(status)
    status.exitstatus == 124 ? "not ended after #{SECONDS} s" : status.to_s[/exit \d+|SIG\w+/]
  end

  def found?(tool) = system("command -v #{tool} >/dev/null")

  def at_a_time(all)
    queue = Queue.new(all).close
    Array.new(AT_A_TIME) do
      Thread.new do
        results = []
        while (one = queue.pop)
          results << yield(one)
        end
        results
      end
    end.flat_map(&:value)
  end

  # {probe => number of operands that its note must have}
  def expected
    probes = YAML.safe_load_file("providers/probescope.yml", aliases: true).fetch("probes")
    probes.to_h { |probe| [probe["name"], probe["more"] ? 6 : probe["args"].size] }
  end

  def build(source)
    program = File.join(@directory, File.basename(source, ".c"))
    compile(*wraps, "-o", program, source, *objects, "-pthread", *("-static" unless @prefix.empty?))
    program
  end

  # The objects of the core, the recorder and the VM, which are compiled once for all programs.
  def objects
    @objects ||= [*sources, RECORDER, VM].map do |source|
      File.join(@directory, "#{File.basename(source, ".c")}.o").tap do |object|
        compile("-c", "-o", object, source)
      end
    end
  end

  # Linker flags that redirect calls to the recorder's versions of these functions.
  def wraps
    names = File.read(RECORDER).scan(/RECORD_ROW\((\w+), PS|__wrap_ps_fire_(\w+)\(/).flatten.compact.uniq
    names.map { |name| "-Wl,--wrap=ps_fire_#{name}" }
  end

  def compile(*arguments)
    out, status = Open3.capture2e(compiler, *@flags, "-Iext/core", "-Iext/libstapsdt", *arguments)
    raise "#{compiler}: #{out}" unless status.success?
  end

  def run(program)
    if !@runner.empty? && !found?(@runner.first)
      puts "#{program}: built, not run (no #{@runner.first})"
      return true
    end
    environment = @runner.empty? ? {} : { "PROBESCOPE_TEST_EMULATED" => "1" }
    out, status = Open3.capture2e(environment, "timeout", SECONDS.to_s, *@runner, program)
    puts out
    warn "FAILED: #{program} (#{how(status)})" unless status.success?
    status.success?
  end
end
