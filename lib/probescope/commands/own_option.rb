# frozen_string_literal: true

require_relative "../tracing/nearest"

module Probescope
  module Commands
    # --own, for commands whose figures belong to call paths.
    module OwnOption
      private

      def own_option(parser)
        parser.on("--own GLOB", "which files are the application's, such as 'app/*'; '!GLOB' takes files " \
                                "away; more than one: --own again, or separated by commas") do |globs|
          own_globs.concat(globs.split(",").map(&:strip).reject(&:empty?))
        end
      end

      def own_globs = @own_globs ||= []

      # Chooses the application's files in a recording. entry: globs of the package that was started.
      # Yields a text for each glob that matches no file.
      def choose_own(recording, entry = [])
        own = recording.choose_own(own_globs, entry)
        return unless block_given?

        own.unmatched.each { |glob| yield unmatched(glob, recording.frames) }
        return unless own.matches_nothing?

        yield "no file matches --own, so the application's files are the same as before"
      end

      # frames: all that a glob could match.
      def unmatched(glob, frames)
        paths = frames.reject(&:what).map(&:path).uniq - [""]
        near = Tracing::Nearest.names(glob, paths)
        "--own #{glob}: no file matches#{"; near: #{near.join(", ")}" if near.any?}"
      end
    end
  end
end
