# frozen_string_literal: true

require_relative "lib/probescope/version"

Gem::Specification.new do |spec|
  spec.name = "probescope"
  spec.version = Probescope::VERSION
  spec.summary = "USDT probes in running Ruby applications, free until a tracer attaches"
  spec.description = "Names the hot functions, the costly exceptions and the allocating lines of a " \
                     "running, unpatched Ruby process: a C extension that puts USDT probes into it, and a " \
                     "command that reads them with bpftrace."
  spec.authors = ["The probescope authors"]
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.1"

  # A glob and not `git ls-files`: the gem must also build from a tarball and from a container that
  # has no git.
  spec.files = Dir.chdir(__dir__) do
    Dir["exe/*", "lib/**/*.rb", "ext/{core/*,libstapsdt}/*.{c,h}", "ext/ruby/{*.{c,h,rb},depend}",
        "providers/*.{bt,yml}", "page/page.gen.html", "page/vendor/LICENSES",
        "docs/**/*.{md,svg}", "docs/schema/*.json",
        "LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md"]
      .select { |path| File.file?(path) && !path.start_with?("ext/core/test/") }
  end
  spec.bindir = "exe"
  spec.executables = ["probescope"]
  spec.require_paths = ["lib"]
  spec.extensions = ["ext/ruby/extconf.rb"]
  spec.post_install_message = "Are there probes for this Ruby, and what is missing if not? " \
                              "`probescope doctor` says."

  spec.metadata["rubygems_mfa_required"] = "true"
end
