# frozen_string_literal: true

require "digest"
require "fileutils"
require "json"
require "open3"

module Release
  # An architecture for which packages are built. debian: its name in Debian. prefix: of the names
  # of its compiler and binutils.
  Arch = Struct.new(:cpu, :debian, :prefix, keyword_init: true) do
    def triplet = "#{cpu}-linux-gnu"
    def tool(name) = "#{prefix}#{name}"
  end

  ARCHS = [Arch.new(cpu: "x86_64", debian: "amd64", prefix: "x86_64-linux-gnu-"),
           Arch.new(cpu: "aarch64", debian: "arm64", prefix: "aarch64-linux-gnu-")].freeze

  # What a compiler finds with --sysroot: the C library of Debian 11 (GLIBC 2.31), and the headers
  # of every Ruby and CPython, each from the suite that has it. Packages are unpacked and never
  # installed, so this also works for an architecture that this machine cannot run. The sysroot is
  # kept in $PROBESCOPE_CHROOTS; RELEASE_FRESH=1 makes it anew.
  class Sysroot
    CACHE = ENV.fetch("PROBESCOPE_CHROOTS", "/var/tmp/probescope-chroots")
    GLIBC = "2.31"
    LIBC = %w[libc6 libc6-dev libcrypt1 libcrypt-dev linux-libc-dev].freeze
    # No suite has Ruby 4.0 yet. Debian has no free-threaded CPython.
    RUBIES = {"3.1" => "bookworm", "3.2" => "noble", "3.3" => "trixie", "3.4" => "experimental"}.freeze
    PYTHONS = {"3.11" => "bookworm", "3.12" => "noble", "3.13" => "trixie",
               "3.14" => "sid", "3.15" => "sid"}.freeze
    DEBIAN = %w[bullseye bookworm trixie sid experimental].freeze
    DEBIAN_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
    # Ubuntu has a separate archive for some architectures.
    UBUNTU = {"amd64" => "http://archive.ubuntu.com/ubuntu",
              "arm64" => "http://ports.ubuntu.com/ubuntu-ports"}.freeze

    attr_reader :arch, :path

    def initialize(arch)
      @arch = arch
      @path = "#{CACHE}/sysroot-#{arch.triplet}"
      make unless File.exist?("#{path}/packages.json") && !ENV["RELEASE_FRESH"]
    end

    # [{"name", "version", "suite", "sha256"}, ...]
    def packages = JSON.parse(File.read("#{path}/packages.json")).fetch("packages")
    # {"Ruby 3.2" => reason, ...}
    def left_out = JSON.parse(File.read("#{path}/packages.json")).fetch("left_out")
    def rubies = RUBIES.keys.reject { |version| left_out.key?("Ruby #{version}") }
    def pythons = PYTHONS.keys.reject { |version| left_out.key?("CPython #{version}") }

    private

    def make
      FileUtils.mkdir_p(CACHE)
      @new = Dir.mktmpdir("sysroot-", CACHE)
      @packages = []
      @left_out = {}
      prepare_apt
      LIBC.each { |name| unpack("bullseye", name) or raise "no #{name} of #{arch.debian} in bullseye" }
      RUBIES.each do |version, suite|
        add("Ruby #{version}", suite, "ruby#{version}-dev", ["libruby#{version}", "libruby#{version}t64"])
      end
      PYTHONS.each { |version, suite| add("CPython #{version}", suite, "libpython#{version}-dev") }
      make_links_relative
      FileUtils.rm_rf("#{@new}/apt")
      File.write("#{@new}/packages.json", JSON.pretty_generate(packages: @packages, left_out: @left_out))
      File.chmod(0o755, @new)
      FileUtils.rm_rf(path)
      File.rename(@new, path)
    end

    # names: of packages. A list holds alternative names, because suites differ in the name.
    def add(what, suite, *names)
      missing = names.find { |name| Array(name).none? { |one| unpack(suite, one) } }
      if missing
        @left_out[what] = "#{suite} has no #{Array(missing).first} of #{arch.debian} that can be fetched"
      end
    end

    # An apt with its own lists and keys, independent of this system's.
    def prepare_apt
      apt = "#{@new}/apt"
      folders = %w[state/lists/partial cache/archives/partial etc files]
      FileUtils.mkdir_p(folders.map { |name| "#{apt}/#{name}" })
      FileUtils.touch("#{apt}/state/status")
      ubuntu, status = Open3.capture2("#{__dir__}/../../.ci/ubuntu-keys")
      raise "no keys of Ubuntu" unless status.success?

      sources = DEBIAN.map do |suite|
        "deb [arch=#{arch.debian} signed-by=#{DEBIAN_KEYS}] http://deb.debian.org/debian #{suite} main"
      end
      sources << "deb [arch=#{arch.debian} signed-by=#{ubuntu.strip}] #{UBUNTU.fetch(arch.debian)} " \
                 "noble main universe"
      File.write("#{apt}/etc/sources.list", "#{sources.join("\n")}\n")
      File.write("#{apt}/apt.conf", <<~CONF)
        Dir "#{apt}";
        Dir::State "state"; Dir::State::status "state/status"; Dir::Cache "cache";
        Dir::Etc "etc"; Dir::Etc::sourcelist "sources.list"; Dir::Etc::sourceparts "-"; Dir::Etc::trustedparts "-";
        APT::Architecture "#{arch.debian}"; APT::Architectures { "#{arch.debian}"; };
        APT::Sandbox::User "root"; Acquire::Languages "none"; Acquire::Check-Valid-Until "false"; Acquire::Retries "2";
      CONF
      apt("update")
    end

    def apt(*words)
      out, status = Open3.capture2e({"APT_CONFIG" => "#{@new}/apt/apt.conf", "LC_ALL" => "C"},
                                    "apt-get", "-q", *words, chdir: "#{@new}/apt/files")
      status.success? && out
    end

    # Downloads and unpacks a package. Returns false when the suite does not have it.
    def unpack(suite, name)
      FileUtils.rm_f(Dir["#{@new}/apt/files/*.deb"])
      return false unless apt("-t", suite, "download", name)

      file = Dir["#{@new}/apt/files/*.deb"].first
      version, = Open3.capture2("dpkg-deb", "--field", file, "Version")
      system("dpkg-deb", "-x", file, @new, exception: true)
      @packages << {name: name, version: version.strip, suite: suite,
                    sha256: Digest::SHA256.file(file).hexdigest}
      true
    end

    # An absolute link such as /lib/... would lead to this system's files.
    def make_links_relative
      links = Dir.glob("#{@new}/{lib,lib64,usr/lib}/**/*").select do |one|
        File.symlink?(one) && File.readlink(one).start_with?("/")
      end
      links.each do |link|
        target = "#{@new}#{File.readlink(link)}"
        up = File.dirname(link).delete_prefix(@new).count("/")
        File.unlink(link)
        File.symlink("#{"../" * up}#{target.delete_prefix("#{@new}/")}", link)
      end
    end
  end
end
