# frozen_string_literal: true

require_relative "../spec/support/skips"

desc "Random programs under tracers that come and go (as root; SECONDS=120, SEED, RUBY or PYTHON for one language alone, WITHOUT, ASAN=1)"
task hunt: :compile do
  languages = { "ruby" => "RUBY", "python" => "PYTHON" }
  chosen = languages.select { |_, variable| ENV[variable] }.keys
  chosen = languages.keys if chosen.empty?
  seconds = (Integer(ENV.fetch("SECONDS", "120")) / chosen.size).to_s
  chosen.each do |language|
    arguments = ["spec/hunt/hunt.rb", language, seconds, *ENV.fetch("SEED", nil)]
    if ENV["ASAN"].nil? then ruby(*arguments, verbose: false)
    elsif !File.exist?(Memcheck.preload) then Support::Skips.tell("hunt: the compiler has no libasan")
    elsif language == "ruby"
      Memcheck.build
      Memcheck.check({ "HUNT_CASES" => File.expand_path("tmp/hunt") }, RbConfig.ruby, *arguments)
    else
      MemcheckPython.build(ENV.fetch("PYTHON", "python3"))
      MemcheckPython.check(RbConfig.ruby, *arguments)
    end
  end
end
