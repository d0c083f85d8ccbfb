# frozen_string_literal: true

# Runs libFuzzer on the library for run-time probes, under ASan and UBSan.
module Fuzz
  extend Rake::FileUtilsExt

  CORPUS = "ext/libstapsdt/test/provider_corpus"
  DIRECTORY = "tmp/fuzz"
  PROGRAM = "#{DIRECTORY}/provider_fuzz".freeze
  FLAGS = %w[-std=c11 -D_GNU_SOURCE -DPS_LIBFUZZER -O1 -g -Iext/core -Iext/libstapsdt
             -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all].freeze

  module_function

  def build
    mkdir_p ["#{DIRECTORY}/corpus", CORPUS], verbose: false
    sources = FileList["ext/libstapsdt/*.c", "ext/libstapsdt/test/provider_fuzz_test.c"]
    system(ENV.fetch("CLANG", "clang"), *FLAGS, *ENV.fetch("CFLAGS", "").split, "-o", PROGRAM, *sources,
           err: File::NULL)
  end

  # Keeps in the corpus each new input that reaches code which no smaller input reaches.
  def run(seconds)
    sh PROGRAM, "-max_len=512", "-max_total_time=#{seconds}", "-artifact_prefix=#{DIRECTORY}/",
       "#{DIRECTORY}/corpus", CORPUS, verbose: false
    kept = "#{DIRECTORY}/kept"
    rm_rf kept, verbose: false
    mkdir_p kept, verbose: false
    sh PROGRAM, "-merge=1", "-use_counters=0", kept, CORPUS, "#{DIRECTORY}/corpus",
       verbose: false, err: File::NULL
    rm_rf CORPUS, verbose: false
    mv kept, CORPUS, verbose: false
    puts "fuzz: #{Dir["#{CORPUS}/*"].size} inputs in #{CORPUS}"
  end
end

desc "Fuzz the library for run-time probes under ASan (SECONDS=600; CLANG, CFLAGS), " \
     "and keep new inputs in ext/libstapsdt/test/provider_corpus"
task :fuzz do
  if Fuzz.build then Fuzz.run(ENV.fetch("SECONDS", "600"))
  else
    Support::Skips.tell("fuzz: clang does not build for libFuzzer (Debian: clang libclang-rt-14-dev)")
  end
end

desc "Fuzz the readers of foreign processes and of recordings, of gem and wheel (SECONDS=600, SEED, " \
     "PYTHON); cases are in tmp/fuzz"
task "fuzz:readers" do
  ruby "spec/hostile/fuzz.rb", ENV.fetch("SECONDS", "600"), *ENV.fetch("SEED", nil), verbose: false
end
