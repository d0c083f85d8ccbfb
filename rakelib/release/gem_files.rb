# frozen_string_literal: true

require "rubygems/package"
require_relative "extension"

module Release
  # The source gem, and gems with the compiled extension for several Rubies.
  module Gems
    module_function

    def source(source) = pack(source, specification(source))

    # libraries: {"3.3.0-x86_64-linux-gnu" => path, ...}
    def native(source, arch, libraries)
      staged = "#{WORK}/gem-#{arch.triplet}"
      FileUtils.rm_rf(staged)
      FileUtils.cp_r(source, staged)
      libraries.each do |directory, library|
        FileUtils.mkdir_p("#{staged}/lib/probescope/#{directory}")
        FileUtils.cp(library, "#{staged}/lib/probescope/#{directory}/probescope.so")
      end
      Release.level(staged)
      pack(staged, native_specification(staged, arch, libraries.keys))
    end

    def native_specification(staged, arch, directories)
      specification = specification(staged)
      specification.platform = Gem::Platform.new([arch.cpu, "linux"]) # without gnu: decision 211
      specification.extensions.clear
      specification.files = specification.files.reject { |path| path.start_with?("ext/") } +
                            directories.map { |directory| "lib/probescope/#{directory}/probescope.so" }
      # Later Rubies use the source gem.
      major, minor = directories.map { |one| one.scan(/\d+/).first(2).map(&:to_i) }.max
      specification.required_ruby_version = [">= 3.1", "< #{major}.#{minor + 1}.dev"]
      specification
    end

    def specification(directory)
      verbose = $VERBOSE
      $VERBOSE = nil # the gemspec defines the version a second time
      Gem::Specification.load("#{directory}/probescope.gemspec").dup
    ensure
      $VERBOSE = verbose
    end

    def pack(directory, specification)
      file = "#{PKG}/#{specification.file_name}"
      ENV["SOURCE_DATE_EPOCH"] = Release.epoch.to_s
      specification.date = Time.at(Release.epoch).utc
      Dir.chdir(directory) do
        Gem::DefaultUserInteraction.use_ui(Gem::SilentUI.new) do
          Gem::Package.build(specification, false, false, file)
        end
      end
      file
    end
  end
end
