# frozen_string_literal: true

require_relative "core_build"

# The C tests of ext/core and ext/libstapsdt, which need neither Ruby nor a tracer. Each *_test.c in
# their folders `test` is a program.
namespace :core do
  # The three builds run in parallel: their programs wait more than they compute.
  desc "Build and run the C tests: plain, under ThreadSanitizer, under ASan and UBSan (TEST=switching: one)"
  multitask test: %w[core:plain core:sanitized core:threads]

  desc "Build and run the C tests without sanitizers (TEST=switching: one)"
  task(:plain) { CoreBuild.new("plain").test }
  task :sanitized do
    CoreBuild.new("sanitized", flags: %w[-O1 -fsanitize=address,undefined -fno-sanitize-recover=all]).test
  end
  task :threads do
    # -Wno-tsan: ThreadSanitizer does not support fences. Only a command that reads probescope_info
    # depends on them.
    threads = CoreBuild.new("threads", flags: %w[-fsanitize=thread -Wno-tsan])
    if threads.runs?
      threads.test
    else
      Support::Skips.tell("core (threads): programs with ThreadSanitizer do not start here")
    end
  end

  desc "Cross-compile the core and the CPython extension for aarch64, check their notes, " \
       "and run the core's tests under qemu"
  task :aarch64 do
    build = CoreBuild.new("aarch64", prefix: "aarch64-linux-gnu-", runner: %w[qemu-aarch64])
    unless build.compiler?
      next Support::Skips.tell("core:aarch64: no aarch64-linux-gnu-gcc (Debian: gcc-aarch64-linux-gnu)")
    end

    build.check_notes
    build.check_python_notes
    build.test
  end
end
