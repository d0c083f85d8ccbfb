# frozen_string_literal: true

require_relative "../tracing/nearest"

module Probescope
  module Commands
    # --own, for commands that show recordings.
    module OwnOption
      private

      def own_option(parser)
        parser.on("--own GLOB",
                  "files that count as the application's, such as 'app/*'; several: comma, or again; " \
                  "!GLOB takes files away") { |text| own_globs.concat(text.split(",")) }
      end

      def own_globs = @own_globs ||= []

      # Chooses the application's files in a recording. Yields a text if a glob matches no file.
      def choose_own(recording)
        own = recording.choose_own(own_globs)
        return if own.unmatched.empty?

        paths = recording.frames.reject(&:what).map(&:path).uniq
        own.unmatched.each do |glob|
          nearest = Tracing::Nearest.names(glob, paths)
          yield "no file matches --own #{glob}; the nearest: #{nearest.join(", ")}"
        end
      end
    end
  end
end
