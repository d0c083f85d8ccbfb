# frozen_string_literal: true

require "fileutils"
require "open3"
require_relative "sysroot"

module Release
  # The flags and tools for everything that is compiled. They do not depend on those with which the
  # Rubies and Pythons themselves were built.
  class Toolchain
    # Debug information goes into separate files. The other flags are Debian's hardening, as in its
    # packages.
    FLAGS = %w[-O2 -g -fPIC -fstack-protector-strong -D_FORTIFY_SOURCE=2].freeze
    CPU_FLAGS = {"x86_64" => %w[-fstack-clash-protection -fcf-protection],
                 "aarch64" => %w[-fstack-clash-protection -mbranch-protection=standard]}.freeze
    LINK_FLAGS = %w[-Wl,-z,relro -Wl,-z,now -Wl,--as-needed -Wl,--build-id=sha1 -Wl,--hash-style=gnu].freeze

    attr_reader :arch, :sysroot

    # source: the directory of the sources. Debug information names it probescope-VERSION/.
    def initialize(arch, source)
      @arch = arch
      @sysroot = Sysroot.new(arch)
      @source = source
    end

    # A cross compiler has a C library of its own, which --sysroot alone does not replace.
    def compiler
      @compiler ||= begin
        own, = Open3.capture2(arch.tool("gcc"), "-print-file-name=include")
        headers = [own.strip, "#{sysroot.path}/usr/include/#{arch.triplet}", "#{sysroot.path}/usr/include"]
        libraries = ["#{sysroot.path}/usr/lib/#{arch.triplet}", "#{sysroot.path}/lib/#{arch.triplet}"]
        [arch.tool("gcc"), "--sysroot=#{sysroot.path}", "-nostdinc", *headers.map { |one| "-isystem #{one}" },
         "-B#{libraries.first}/", *libraries.map { |one| "-L#{one}" }].join(" ")
      end
    end

    def flags
      # The last matching map counts. The build-id also depends on debug information, which names
      # the working directory.
      maps = {WORK => "build", @source => "probescope-#{VERSION}", sysroot.path => ""}
      [*FLAGS, *CPU_FLAGS.fetch(arch.cpu),
       *maps.map { |from, to| "-ffile-prefix-map=#{from}=#{to}" }].join(" ")
    end

    def link_flags = LINK_FLAGS.join(" ")

    # No variable of this machine, such as CPATH or CFLAGS, is passed on.
    def environment(more)
      {"PATH" => ENV.fetch("PATH"), "HOME" => Dir.tmpdir, "LANG" => "C.UTF-8",
       "SOURCE_DATE_EPOCH" => Release.epoch.to_s, **more.transform_keys(&:to_s)}
    end

    def run(*command, chdir:, **more)
      out, status = Open3.capture2e(environment(more), *command, chdir: chdir, unsetenv_others: true)
      raise "#{command.join(" ")}\n#{out}" unless status.success?

      out
    end

    # Moves debug information out of the library, into a file in `debug` that debuggers find by the
    # build-id. Returns the library.
    def split(library, debug)
      notes = run(arch.tool("readelf"), "--notes", library, chdir: "/")
      id = notes[/Build ID: (\h+)/, 1] or raise "no build-id in #{library}"
      file = "#{debug}/.build-id/#{id[0, 2]}/#{id[2..]}.debug"
      FileUtils.mkdir_p(File.dirname(file))
      run(arch.tool("objcopy"), "--only-keep-debug", library, file, chdir: "/")
      run(arch.tool("strip"), "--strip-unneeded", "--remove-section=.comment", library, chdir: "/")
      hold(library)
      library
    end

    # Raises unless the library runs on every system from GLIBC on, and still has its probes and
    # symbol.
    def hold(library)
      versions = run(arch.tool("objdump"), "-T", library, chdir: "/").scan(/GLIBC_([\d.]+)/)
      needed = versions.map { |one| Gem::Version.new(one.first) }.max
      raise "#{library} needs GLIBC #{needed}" if needed > Gem::Version.new(Sysroot::GLIBC)

      notes = run(arch.tool("readelf"), "--notes", "--wide", library, chdir: "/")
              .scan(/Provider: probescope/).size
      symbols = run(arch.tool("readelf"), "--dyn-syms", "--wide", library, chdir: "/")
      raise "#{library} has lost its probes" unless notes > 20 && symbols.include?("probescope_info")

      text = File.binread(library)
      raise "#{library} has paths of this machine" if text.include?(@source) || text.include?(sysroot.path)
    end
  end

  # The extension for one Ruby. It is configured by its own extconf.rb and this machine's mkmf,
  # which reads the target's configuration instead of this Ruby's.
  class RubyExtension
    attr_reader :version

    def initialize(toolchain, version, source)
      @toolchain = toolchain
      @version = version
      @source = source
    end

    # The name of the directory in lib/probescope.
    def directory = "#{version}.0-#{@toolchain.arch.triplet}"

    # Returns the library's path, which is below folder.
    def compile(folder)
      place = File.join(folder, "ruby-#{version}")
      FileUtils.mkdir_p(place)
      File.write("#{place}/rbconfig.rb", configuration)
      script = "#{@source}/ext/ruby/extconf.rb"
      log = @toolchain.run(RbConfig.ruby, "--disable=gems", "-I#{place}", "-rrbconfig", script, chdir: place)
      gave_up = !File.read("#{place}/Makefile").include?("TARGET = probescope")
      raise "extconf.rb gave up:\n#{log}\n#{File.read("#{place}/mkmf.log")}" if gave_up

      log = @toolchain.run("make", "-j2", "V=1", chdir: place)
      raise "warnings:\n#{log[/^.*warning:.*$/]}" if log.match?(/\bwarning:/)

      "#{place}/probescope.so"
    end

    private

    # The target's own rbconfig.rb, with the compiler and the paths of the sysroot.
    def configuration
      root = @toolchain.sysroot.path
      place = "#{root}/usr/lib/#{@toolchain.arch.triplet}/ruby/#{version}.0/rbconfig.rb"
      text = File.read(place).sub(/^  RUBY_VERSION\.start_with\?.*\n.*raise .*\n/, "")
      unless text.sub!(/^  TOPDIR = .*$/, "  TOPDIR = #{"#{root}/usr".dump}")
        raise "#{place} has no TOPDIR line of the known form"
      end

      settings = {"CC" => @toolchain.compiler, "CFLAGS" => @toolchain.flags, "CPPFLAGS" => "",
                  "LDFLAGS" => "-Wl,--allow-shlib-undefined", "DLDFLAGS" => @toolchain.link_flags,
                  "AR" => @toolchain.arch.tool("ar"), "optflags" => "", "debugflags" => ""}
      # mkmf reads MAKEFILE_CONFIG, and CONFIG for values without references.
      text.sub(/^  MAKEFILE_CONFIG = \{\}\n/) do
        settings.map { |name, value| "  CONFIG[#{name.dump}] = #{value.dump}\n" }.join + Regexp.last_match(0)
      end
    end
  end
end
