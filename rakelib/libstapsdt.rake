# frozen_string_literal: true

require_relative "../lib/probescope/version"

# ext/libstapsdt as a C library. Programs and wrappers that were made for libstapsdt can load it.
module Libstapsdt
  extend Rake::FileUtilsExt

  SOURCES = FileList["ext/libstapsdt/*.c"]
  FLAGS = %w[-std=c11 -D_GNU_SOURCE -Iext/core -O2 -fPIC -fno-lto
             -Wall -Wextra -Wno-unused-parameter -Wno-comment].freeze

  module_function

  # Builds the library for DESTDIR/PREFIX, as for a package: the paths in its files begin with
  # PREFIX.
  def install(prefix, destination: "", compiler: ENV.fetch("CC", "cc"))
    root = File.join(destination, prefix)
    library = "#{root}/lib/libstapsdt.so.0"
    mkdir_p ["#{root}/lib/pkgconfig", "#{root}/include"], verbose: false
    rm_f library, verbose: false # a process may have mapped the old file, which must not change
    sh compiler, *FLAGS, *ENV.fetch("CFLAGS", "").split, "-shared", "-Wl,-soname,libstapsdt.so.0",
       "-Wl,--version-script=ext/libstapsdt/libstapsdt.map", "-o", library, *SOURCES,
       *ENV.fetch("LDFLAGS", "").split, "-pthread", verbose: false
    ln_sf "libstapsdt.so.0", "#{root}/lib/libstapsdt.so", verbose: false
    cp "ext/libstapsdt/libstapsdt.h", "#{root}/include", verbose: false
    File.write("#{root}/lib/pkgconfig/libstapsdt.pc", pkg_config(prefix))
    library
  end

  # Upstream's last version is 0.1.1. A compatible library needs a higher version.
  def pkg_config(prefix)
    <<~TEXT
      prefix=#{prefix}
      libdir=${prefix}/lib
      includedir=${prefix}/include

      Name: libstapsdt
      Description: USDT probes that programs define while they run (probescope #{Probescope::VERSION})
      Version: 0.2.0
      Libs: -L${libdir} -lstapsdt
      Cflags: -I${includedir}
    TEXT
  end
end

desc "Build libstapsdt.so.0, libstapsdt.h and libstapsdt.pc " \
     "(PREFIX=tmp/libstapsdt; DESTDIR, CC, CFLAGS, LDFLAGS as usual)"
task :libstapsdt do
  prefix = File.expand_path(ENV.fetch("PREFIX", "tmp/libstapsdt"))
  puts "built #{Libstapsdt.install(prefix, destination: ENV.fetch("DESTDIR", ""))}"
end
