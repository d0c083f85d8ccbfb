# frozen_string_literal: true

module Probescope
  # Which functions the function probes cover.
  class Coverage
    attr_reader :functions

    def initialize(environment = ENV)
      @environment = environment
      @functions = parse(environment["PROBESCOPE_FUNCTIONS"])
    end

    # :own, :all, or an Array of globs. Raises Error for any other value.
    def functions=(value)
      valid = %i[own all].include?(value) ||
              (value.is_a?(Array) && value.all?(String) && value.none? { |glob| glob.include?("\0") })
      unless valid
        raise Error, "Probescope.functions wants :own, :all or an Array of globs, not #{value.inspect}"
      end

      @functions = value
    end

    # Hands the settings to the extension, which then reinstalls its hooks. Does nothing when the
    # settings have not changed.
    def apply
      wanted = [roots, outside, [__dir__.to_s], patterns]
      return if wanted == @applied

      Native.cover(*wanted)
      @applied = wanted
    end

    # Directories of the application: its own root, and the directory of the script that was
    # started. / is a root only where PROBESCOPE_ROOT names it. Where the script lies in /, as in
    # many a container image, the script itself counts as the application's, and not the rest of /.
    def roots
      script = File.expand_path($PROGRAM_NAME)
      found = [bundler_root, Dir.pwd, File.dirname(script)].compact.map { |path| directory(path) } - ["/"]
      found << script if File.dirname(script) == "/"
      asked = @environment["PROBESCOPE_ROOT"]
      [*(directory(asked) if asked), *found].uniq
    rescue SystemCallError # the current directory may have been removed
      []
    end

    # Directories that never belong to the application: Ruby's own and those of gems.
    def outside
      gems = defined?(Gem) ? Gem.path + [Gem.default_dir] : []
      ruby = RbConfig::CONFIG.values_at("rubylibdir", "rubyarchdir", "sitedir", "vendordir")
      [*gems, *ruby].compact.map { |path| directory(path) }.uniq << "#{__dir__}.rb"
    end

    private

    def parse(text)
      case text&.strip
      when nil, "", "own" then :own
      when "all" then :all
      else text.split(",").map(&:strip).reject(&:empty?)
      end
    end

    def patterns
      case @functions
      when :own then nil
      when :all then ["*"]
      else @functions.map { |glob| anchored(glob) }
      end
    end

    # "app/models/*" matches every path that ends so, wherever the application is installed.
    def anchored(glob)
      is_path = glob.include?("/") || glob.end_with?(".rb")
      is_path && !glob.start_with?("/", "*") ? "*/#{glob}" : glob
    end

    def directory(path) = "#{File.expand_path(path).chomp("/")}/"

    def bundler_root
      defined?(Bundler) && Bundler.respond_to?(:root) ? Bundler.root.to_s : nil
    rescue StandardError # no Gemfile
      nil
    end
  end
end
