# frozen_string_literal: true

require_relative "base"
require_relative "../tracing/caller"

module Probescope
  module Commands
    # Replaces this process by another command. probescope is loaded into every Ruby that the
    # command starts, and into every Python that has the package.
    class Run < Base
      USAGE = "run [options] -- COMMAND [ARGUMENTS]"
      ABOUT = <<~TEXT
        Starts a command with probescope in its Ruby or Python: no Gemfile entry, no import, no change of
        the application. It costs nothing until a tracer attaches, and needs no privilege: under sudo, the
        command runs as the user who called sudo. A Ruby for which this gem was not built runs without
        probescope, and so does a Python without the package (`pip install /path/to/checkout`, into its
        virtualenv if it has one).
      TEXT
      EXAMPLES = <<~TEXT
        probescope run -- bundle exec puma
        probescope run -- ruby app.rb --port 3000
        probescope run -- gunicorn --workers 4 shop:app
        probescope run --functions '/srv/app/**,Invoice#*' -- rails server
      TEXT
      AUTO = File.expand_path("../auto", __dir__)

      # The command begins at the first argument that is no option, with or without `--` before it.
      def run(argv)
        parser.order!(argv = argv.dup)
        return puts(parser.help) || 0 if @help
        raise CLI::Usage.new("which command?", "probescope run -- ruby app.rb") if argv.empty?

        tell_of_no_probes
        exec(without_sudo.merge(environment), *argv)
      rescue OptionParser::ParseError => e
        raise CLI::Usage.new(e.message, "probescope run --help")
      rescue SystemCallError => e
        raise Tracing::Error.new("cannot run #{argv.first.inspect}: #{e.message}",
                                 "check its name and the PATH")
      end

      private

      def options(parser)
        parser.on("--functions GLOBS",
                  "which functions `calls` covers, as PROBESCOPE_FUNCTIONS does") do |globs|
          @functions = globs
        end
      end

      # The command may run another Ruby, or Python, but most commands run this Ruby.
      def tell_of_no_probes
        require_relative "../../probescope"
        reason = Probescope.unavailable_reason
        warn("probescope: programs of Ruby #{RUBY_VERSION} have no probes: #{reason}") if reason
      end

      # sudo is for tracing: an application should not run as root because of it. Makes this process
      # the user who called sudo. Returns the changes that this needs in the environment.
      def without_sudo
        user = Tracing::Caller.user or return {}
        warn("probescope: `run` needs no sudo: the command runs as #{user.name}")
        Tracing::Caller.become(user)
      end

      # The absolute path of AUTO works under Bundler, which hides gems that are not in the Gemfile.
      # Ruby splits RUBYOPT at spaces, so a path with a space goes into RUBYLIB.
      def environment
        env = {"RUBYOPT" => "-r#{AUTO} #{ENV.fetch("RUBYOPT", "")}".strip}
        if AUTO.match?(/\s/)
          env["RUBYOPT"] = "-rprobescope/auto #{ENV.fetch("RUBYOPT", "")}".strip
          folders = [File.dirname(AUTO, 2), ENV.fetch("RUBYLIB", nil)]
          env["RUBYLIB"] = folders.compact.join(File::PATH_SEPARATOR)
        end
        env["PROBESCOPE"] = "1" # a Python with the package checks this when it starts
        env["PROBESCOPE_FUNCTIONS"] = @functions if @functions
        env
      end
    end
  end
end
