# frozen_string_literal: true

require_relative "../spec/support/skips"

# The crash hunt of spec/hunt: chooses languages, interpreters and sanitizers.
module HuntTask
  extend Rake::FileUtilsExt

  module_function

  def languages
    chosen = { "ruby" => "RUBY", "python" => "PYTHON" }.select { |_, variable| ENV[variable] }.keys
    chosen.empty? ? %w[ruby python] : chosen
  end

  def run(language, seconds)
    arguments = ["spec/hunt/hunt.rb", language, seconds.to_s, *ENV.fetch("SEED", nil)]
    python if language == "python"
    return ruby(*arguments, verbose: false) if ENV["ASAN"].nil?
    return Support::Skips.tell("hunt: the compiler has no libasan") unless File.exist?(Memcheck.preload)

    ENV["HUNT_CASES"] ||= File.expand_path("tmp/hunt")
    if language == "ruby"
      Memcheck.build
      Memcheck.check({}, RbConfig.ruby, *arguments)
    else
      MemcheckPython.build(ENV.fetch("PYTHON"))
      MemcheckPython.check(RbConfig.ruby, *arguments)
    end
  end

  # Runs the hunt with a fault that it found once, in a copy of the checkout with
  # spec/hunt/fault_1.patch.
  def with_fault(seconds)
    copy = File.expand_path("tmp/hunt/fault_1")
    rm_rf copy, verbose: false
    mkdir_p ["#{copy}/tmp", "#{copy}/build"], verbose: false
    cp_r %w[lib ext spec providers], copy, verbose: false
    sh "patch", "--quiet", "--strip=1", "--directory=#{copy}",
       "--input=#{File.expand_path("spec/hunt/fault_1.patch")}", verbose: false
    chdir "#{copy}/build", verbose: false do
      sh RbConfig.ruby, "../ext/ruby/extconf.rb", verbose: false, out: File::NULL
      sh "make", "--silent", "V=0", verbose: false, out: File::NULL
    end
    folder = RbConfig::CONFIG.values_at("ruby_version", "arch").join("-")
    cp "#{copy}/build/probescope.so", "#{copy}/lib/probescope/#{folder}/", verbose: false
    # A few cases are enough; a case may also show another fault.
    hunt = [{ "MOST_CASES" => "5" }, RbConfig.ruby, "spec/hunt/hunt.rb", "ruby", seconds.to_s,
            *ENV.fetch("SEED", nil)]
    chdir(copy, verbose: false) { IO.popen(hunt, &:read) }
  end

  # Builds the extension in python/probescope, for an interpreter in a virtual environment. It has
  # setuptools, which later Pythons lack, and greenlet if pip can get it.
  def python
    interpreter = ENV.fetch("PYTHON", "python3")
    telling = "import platform, sys; print(platform.python_version() + sys.abiflags)"
    version = `#{interpreter} -c "#{telling}"`.chomp
    venv = "tmp/hunt/python-#{version}"
    unless File.exist?("#{venv}/ready")
      sh interpreter, "-m", "venv", venv, verbose: false
      sh "#{venv}/bin/pip", "install", "--quiet", "setuptools", verbose: false
      system("#{venv}/bin/pip", "install", "--quiet", "greenlet", out: File::NULL, err: File::NULL)
      touch "#{venv}/ready", verbose: false
    end
    ENV["PYTHON"] = File.expand_path("#{venv}/bin/python")
    without = !system(ENV.fetch("PYTHON"), "-c", "import greenlet", err: File::NULL)
    puts "hunt: Python #{version} without greenlets, which pip cannot get for it" if without
    sh ENV.fetch("PYTHON"), "setup.py", "--quiet", "build_ext", "--inplace",
       verbose: false, out: File::NULL, err: File::NULL
  end
end

desc "Run random programs while probes are attached and detached " \
     "(as root; SECONDS=120, SEED, RUBY or PYTHON for one language, WITHOUT, ASAN=1)"
task hunt: :compile do
  seconds = Integer(ENV.fetch("SECONDS", "120")) / HuntTask.languages.size
  failed = HuntTask.languages.reject do |language|
    HuntTask.run(language, seconds)
    true
  rescue RuntimeError => e
    puts e.message.lines.first
  end
  abort "FAILED: hunt: #{failed.join(", ")}" if failed.any?
end

desc "Check that the hunt finds an old fault in a copy with that fault: Ruby 3.3 and later " \
     "(as root; SECONDS=120, SEED)"
task "hunt:proves": :compile do
  puts(text = HuntTask.with_fault(Integer(ENV.fetch("SECONDS", "120"))))
  found = text.scan(/^FAILED: .*frame2iseq/).size
  abort "FAILED: hunt:proves: the hunt does not find the fault" if found.zero?
  puts "hunt:proves: #{found} cases of the old fault"
end
