# frozen_string_literal: true

# Installing the gem must never break an application's bundle. Where probes cannot work (not Linux,
# another CPU, no compiler) this makes an empty extension and writes down why; Probescope.install is
# a no-op then and `probescope doctor` shows the reason.

# The extension goes into a directory named after the Ruby it is built for, so that a Ruby of
# another version or CPU, started with RUBYOPT=-rprobescope/auto, finds nothing to load instead of
# something that crashes it.
ABI_DIRECTORY = RbConfig::CONFIG.values_at("ruby_version", "arch").join("-")
REASON_FILE = File.expand_path("../../lib/probescope/unavailable.txt", __dir__)

MAKE_PROGRAM = (ENV["MAKE"] || ENV["make"] || "make").split.first.freeze

def make?
  folders = ENV["PATH"].to_s.split(File::PATH_SEPARATOR)
  folders.any? { |folder| File.executable?(File.expand_path(MAKE_PROGRAM, folder)) }
end

# RubyGems 4.0 and later run make only where there is a Makefile; earlier ones fail without one, and
# without make (docs/decisions/212-a-source-gem-without-make.md).
def make_optional?
  require "rubygems/ext"
  Gem::Ext::Builder.const_defined?(:NoMakefileError)
rescue LoadError
  false
end

def give_up(reason)
  unless make? || make_optional?
    abort "probescope: #{MAKE_PROGRAM} is missing. RubyGems before 4.0 (this is #{Gem::VERSION}) itself " \
          "runs it, for each gem with an extension. With it alone, or by `make=true gem install ...`, the " \
          "gem installs without probes: #{reason}"
  end
  warn "probescope: #{reason}: installing without probes"
  File.write(REASON_FILE, "#{reason}\n")
  if make?
    File.write("Makefile", "all install static install-so install-rb clean distclean:\n\t@:\n" \
                           ".PHONY: all install clean distclean\n")
  end
  exit 0
end

give_up("Ruby #{RUBY_ENGINE} has no C API of CRuby") unless RUBY_ENGINE == "ruby"
# Not RUBY_PLATFORM: rake release:build compiles for Rubies that this machine cannot run.
unless RbConfig::CONFIG["host_os"].include?("linux")
  give_up("the operating system is #{RbConfig::CONFIG["host_os"]}, and probes need Linux")
end
if RbConfig::CONFIG["host_os"].include?("musl")
  give_up("the C library is musl, and nobody has run probes on it")
end
CPU = RbConfig::CONFIG["host_cpu"]
unless CPU.match?(/x86_64|aarch64|arm64/)
  give_up("the CPU is #{CPU}, and probes are written for x86-64 and aarch64")
end

unless make?
  give_up("probes take a C compiler, Ruby's headers and #{MAKE_PROGRAM} " \
          "(on Debian: apt install ruby-dev gcc make)")
end

begin
  require "mkmf"
  have_header("ruby/debug.h") or
    give_up("Ruby's headers or a C compiler are missing (on Debian: apt install ruby-dev gcc make)")
rescue SystemExit, StandardError => e
  raise if e.is_a?(SystemExit) && e.success?

  give_up("no C compiler works, or Ruby's headers are missing (on Debian: apt install ruby-dev gcc make)")
end
File.delete(REASON_FILE) if File.exist?(REASON_FILE)

have_func("rb_postponed_job_preregister", "ruby/debug.h") # 3.3
have_func("rb_class_attached_object", "ruby.h")           # 3.2
have_func("RTYPEDDATA_EMBEDDED_P", "ruby.h")             # 3.3
have_func("rb_gc_obj_slot_size")                         # 3.2; exported, but in no header: objects_hooks.c
have_func("rb_objspace_reachable_objects_from")          # of ext/objspace, but in no header: methods.c
have_func("rb_internal_thread_add_event_hook", "ruby/thread.h")      # 3.2
have_func("rb_internal_thread_specific_key_create", "ruby/thread.h") # 3.3
have_func("malloc_usable_size", "malloc.h")

# The folders of the sources beside this one. mkmf flattens them: it knows a source by its basename
# alone, and finds it by $VPATH.
folders = %w[base usdt table calls context features agent].map { |name| "core/#{name}" }
folders << "libstapsdt"
# gem install ./probescope-0.1.0.gem -- --with-stapsdt-dir=/opt/libstapsdt: run-time probes by that
# libstapsdt.so and not by our own.
if with_config("stapsdt-dir")
  headers, libraries = dir_config("stapsdt").map { |path| File.expand_path(path) }
  have_library("stapsdt", "providerInit") or give_up("no libstapsdt.so in #{libraries} (--with-stapsdt-dir)")
  folders.delete("libstapsdt")
  $INCFLAGS << " -I#{headers}" # its header comes before ours
  $defs << "-DPS_OTHER_STAPSDT"
  $LDFLAGS << " -Wl,-rpath,#{libraries}"
end
$srcs = Dir[File.join(__dir__, "*.c"), File.expand_path("../{#{folders.join(",")}}/*.c", __dir__)]
        .map { |path| File.basename(path) }
$VPATH.concat(folders.map { |folder| "$(srcdir)/../#{folder}" })
$INCFLAGS << " -I$(srcdir)/../core"
$INCFLAGS << " -I$(srcdir)/../libstapsdt" if folders.include?("libstapsdt")
# No red zone: whatever a kernel puts in the place of a probe may push onto the stack
# (docs/decisions/031-one-nop.md). No LTO: it could move a site.
$CFLAGS << " -D_GNU_SOURCE -fvisibility=hidden -fno-lto -fno-strict-aliasing"
$CFLAGS << " -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers " \
           "-Werror=implicit-function-declaration"
$CFLAGS << " -mno-red-zone" if CPU.include?("x86_64")
# Parts of libc since GLIBC 2.34; before, libraries of their own, which the process need not have.
$LIBS << " -lpthread -lrt -ldl"
# The symbols of Ruby come from the process that loads us: an explicit libruby would bring a second
# one into a Ruby that is linked statically.
$LIBRUBYARG_SHARED = $LIBRUBYARG_STATIC = ""
$LIBRUBYARG = ""

create_makefile("probescope/#{ABI_DIRECTORY}/probescope")
