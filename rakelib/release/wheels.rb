# frozen_string_literal: true

require_relative "extension"

module Release
  # Builds the wheels and the sdist, all with one Python in a virtual environment. python: its path.
  class Wheels
    TOOLS = "#{__dir__}/requirements.txt".freeze

    # PYTHON=/path/to/python chooses the Python of the environment. pip's own settings decide where
    # packages come from.
    def self.python
      @python ||= begin
        venv = "#{ROOT}/tmp/release-venv"
        known = "#{venv}/requirements.txt"
        unless File.exist?(known) && FileUtils.identical?(known, TOOLS)
          system(ENV.fetch("PYTHON", "python3"), "-m", "venv", "--clear", venv, exception: true)
          system("#{venv}/bin/pip", "install", "--quiet", "--disable-pip-version-check",
                 "--requirement", TOOLS, exception: true)
          FileUtils.cp(TOOLS, known)
        end
        "#{venv}/bin/python"
      end
    end

    # setuptools writes times and owners into the tar file, so its contents are packed again.
    def self.sdist(source)
      Dir.mktmpdir do |folder|
        run(source, python, "setup.py", "--quiet", "sdist", "--formats=tar", "--dist-dir", folder)
        name = "probescope-#{VERSION}"
        system("tar", "-x", "-f", "#{folder}/#{name}.tar", "-C", folder, exception: true)
        Release.tar("#{folder}/#{name}", "#{PKG}/#{name}.tar.gz")
      end
    end

    def self.run(source, *command)
      out, status = Open3.capture2e({"SOURCE_DATE_EPOCH" => Release.epoch.to_s}, *command, chdir: source)
      raise "#{command.join(" ")}\n#{out}" unless status.success?
    end

    def initialize(toolchain, source)
      @toolchain = toolchain
      @source = source
    end

    # folder: for the build. debug: for debug information.
    def build(version, folder, debug)
      arch = @toolchain.arch
      digits = version.delete(".")
      base = "#{folder}/python-#{version}"
      FileUtils.rm_rf([base, "#{folder}/wheels-#{version}"])
      setup(version, "build", "--build-base", base, suffix: ".cpython-#{digits}-#{arch.triplet}.so")
      library = Dir["#{base}/lib*/probescope/_native.*.so"].first
      unless library
        raise "CPython #{version}: #{File.read(Dir["#{base}/lib*/probescope/unavailable.txt"].first)}"
      end

      @toolchain.split(library, debug)
      setup(version, "build", "--build-base", base, "bdist_wheel", "--skip-build",
            "--bdist-dir", "#{base}/wheel", "--dist-dir", "#{folder}/wheels-#{version}",
            suffix: ".cpython-#{digits}-#{arch.triplet}.so")
      audit(Dir["#{folder}/wheels-#{version}/*.whl"].first)
    end

    private

    # suffix: of the library's file name.
    def setup(version, *arguments, suffix:)
      compiler = @toolchain.compiler
      environment = {CC: compiler, LDSHARED: "#{compiler} -shared #{@toolchain.link_flags}",
                     CFLAGS: "#{@toolchain.flags} -DNDEBUG -fwrapv", SETUPTOOLS_EXT_SUFFIX: suffix,
                     _PYTHON_HOST_PLATFORM: "linux-#{@toolchain.arch.cpu}"}
      headers = "#{@toolchain.sysroot.path}/usr/include/python#{version}"
      @toolchain.run(self.class.python, "#{__dir__}/cross_setup.py", version, @toolchain.arch.triplet,
                     headers, "--quiet", *arguments, chdir: @source, **environment)
    end

    # Names the wheel after the oldest GLIBC on which it runs. auditwheel refuses a --plat of
    # another CPU than this machine's, but finds the right one itself. There are no libraries to
    # graft.
    def audit(wheel)
      bin = File.dirname(self.class.python)
      @toolchain.run("#{bin}/auditwheel", "repair", "--plat", "auto", "--wheel-dir", PKG, wheel,
                     chdir: "/", PATH: "#{bin}:#{ENV.fetch("PATH")}")
      name = File.basename(wheel).sub(/linux_\w+\.whl\z/, "")
      made = Dir["#{PKG}/#{name}manylinux_*_#{@toolchain.arch.cpu}.whl"].first or
        raise "auditwheel has not named #{name}*"
      tags = made.scan(/manylinux_(\d+_\d+)/).flatten.map { |one| Gem::Version.new(one.tr("_", ".")) }
      raise "#{made} needs a GLIBC that is too new" if tags.max > Gem::Version.new(Sysroot::GLIBC)
    end
  end
end
