# frozen_string_literal: true

require "etc"
require "rbconfig"

# A copy of the checkout whose extension is compiled with AddressSanitizer and
# UndefinedBehaviorSanitizer. Ruby itself is not, so the sanitizers' library must be preloaded. Leaks
# are not reported, because Ruby itself never frees some of its memory.
module Memcheck
  extend Rake::FileUtilsExt

  DIRECTORY = File.expand_path("../tmp/memcheck", __dir__)
  LIBRARY = File.join(DIRECTORY, "lib/probescope",
                      RbConfig::CONFIG.values_at("ruby_version", "arch").join("-"))
  FLAGS = "-DPS_CHECKS -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
  # Ruby leaves C frames by __builtin_longjmp(), of which the sanitizer is not notified. Their
  # redzones would stay on the stack, and a later use of that stack would be reported.
  RUBY_FLAGS = "#{FLAGS} --param asan-stack=0".freeze

  module_function

  def preload = `#{RbConfig::CONFIG["CC"]} -print-file-name=libasan.so`.chomp

  def build
    rm_rf DIRECTORY, verbose: false
    mkdir_p ["#{DIRECTORY}/build", "#{DIRECTORY}/tmp", LIBRARY], verbose: false
    cp_r %w[lib ext bench spec], DIRECTORY, verbose: false
    ln_s File.expand_path("../docs", __dir__), DIRECTORY, verbose: false
    chdir "#{DIRECTORY}/build", verbose: false do
      sh RbConfig.ruby, "../ext/ruby/extconf.rb", verbose: false, out: File::NULL
      # ARCH_FLAG comes last in both the compile and the link command.
      sh "make", "--silent", "V=0", "-j#{Etc.nprocessors}", "ARCH_FLAG=#{RUBY_FLAGS}",
         verbose: false, out: File::NULL
    end
    cp "#{DIRECTORY}/build/probescope.so", LIBRARY, verbose: false
  end

  # Ruby has its own signal stacks. A sanitizer's report ends the process, and is written to
  # tmp/memcheck/report.PID.
  def environment
    { "LD_PRELOAD" => preload,
      "ASAN_OPTIONS" => "detect_leaks=0:use_sigaltstack=0:log_path=#{DIRECTORY}/report",
      "UBSAN_OPTIONS" => "print_stacktrace=1:log_path=#{DIRECTORY}/report" }
  end

  def check(variables, *command)
    done = chdir(DIRECTORY, verbose: false) { system(environment.merge(variables), *command) }
    reports = Dir["#{DIRECTORY}/report.*"]
    reports.each { |path| puts File.read(path) }
    raise "memcheck: #{command.join(" ")} failed, with #{reports.size} reports" unless done && reports.empty?
  end
end

# The same for the Python extension. Python's own allocator is replaced by malloc, because it would
# hide uses after free.
module MemcheckPython
  extend Rake::FileUtilsExt

  DIRECTORY = "#{Memcheck::DIRECTORY}-python".freeze

  module_function

  def build(python)
    rm_rf DIRECTORY, verbose: false
    mkdir_p DIRECTORY, verbose: false
    cp_r %w[lib ext bench spec tests python setup.py pyproject.toml README.md], DIRECTORY, verbose: false
    rm_f Dir["#{DIRECTORY}/python/probescope/*.so"], verbose: false
    chdir DIRECTORY, verbose: false do
      sh({ "CFLAGS" => Memcheck::FLAGS, "LDFLAGS" => "-fsanitize=address,undefined" },
         python, "setup.py", "-q", "build_ext", "--inplace", verbose: false, out: File::NULL)
    end
  end

  def environment
    options = Memcheck.environment.transform_values { |value| value.sub(Memcheck::DIRECTORY, DIRECTORY) }
    options["ASAN_OPTIONS"] += ":allocator_may_return_null=1"
    # C++ extensions throw (greenlet). The sanitizer looks up __cxa_throw when it starts, and ends
    # the program at the first throw without it.
    options["LD_PRELOAD"] += " #{`#{RbConfig::CONFIG["CXX"]} -print-file-name=libstdc++.so.6`.chomp}"
    options.merge("PYTHONMALLOC" => "malloc", "PYTHONPATH" => "#{DIRECTORY}/python", "GROWTH" => "1000000")
  end

  def check(*command)
    done = chdir(DIRECTORY, verbose: false) { system(environment, *command) }
    # A hostile program may request more memory than is available, or limit it. The sanitizer then
    # writes a mere warning.
    reports = Dir["#{DIRECTORY}/report.*"].select do |path|
      File.read(path).match?(/ERROR: AddressSanitizer: |runtime error: /)
    end
    reports.each { |path| puts File.read(path) }
    raise "memcheck: #{command.join(" ")} failed, with #{reports.size} reports" unless done && reports.empty?
  end
end

desc "Attach and detach under load with AddressSanitizer in the Python extension (needs Python's headers " \
     "and setuptools; PYTHON=python3, CYCLES=40; HOSTILE=1: needs pytest)"
task :"memcheck:python" do
  unless File.exist?(Memcheck.preload)
    next Support::Skips.tell("memcheck:python: the compiler has no libasan")
  end

  python = ENV.fetch("PYTHON", "python3")
  MemcheckPython.build(python)
  MemcheckPython.check(python, "bench/soak.py", ENV.fetch("CYCLES", "40"))
  MemcheckPython.check(python, "-m", "pytest", "-q", "tests/test_hostile.py") if ENV["HOSTILE"]
  puts "memcheck:python: no reports"
end

desc "Attach and detach under load with AddressSanitizer in the extension " \
     "(as root; CYCLES=1000, HOSTILE=1: also the hostile programs)"
task :memcheck do
  next Support::Skips.tell("memcheck: the compiler has no libasan") unless File.exist?(Memcheck.preload)

  Memcheck.build
  # A high GROWTH, because the sanitizer keeps freed memory for a while.
  variables = { "CYCLES" => "40", "GROWTH" => "1000000" }.merge(ENV.slice("CYCLES"))
  Memcheck.check(variables, RbConfig.ruby, "bench/soak.rb")
  Memcheck.check({}, "rspec", "spec/ruby/hostile_spec.rb") if ENV["HOSTILE"]
  puts "memcheck: no reports"
end
