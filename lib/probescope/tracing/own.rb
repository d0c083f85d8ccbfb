# frozen_string_literal: true

module Probescope
  module Tracing
    # Which files are the application's own, and not those of a library. It is decided from what a
    # trace has seen, so another choice needs no restart of the process (decision 238).
    #
    # A frame answers to path, own (whether the process counts its file as the application's) and what
    # (whether it is no function).
    class Own
      # What the process counts as its own is taken from this share of the figures on: a script that
      # only starts an installed package is on few stacks, and never where threads work.
      LEAST = 0.01
      WILD = /[*?\[]/
      SET = /\A\[(!?)(.+)\]\z/m

      # by: :glob (--own), :process (what the process counts as its own), :entry (the package that was
      # started) or :none (nothing is known to be the application's). globs: of the files, if they are
      # chosen by globs; of a package that was started, those that files match. unmatched: the globs of
      # --own that no file matches.
      attr_reader :by, :globs, :unmatched

      # asked: the globs of --own; one that begins with "!" takes files away. paths: [[frame, number of
      # the frame that called it or nil, weight of the stacks that end here], ...], callers first.
      # entry: globs of the package that was started, or [].
      def self.choose(asked, paths, entry = [])
        without, with = asked.partition { |glob| glob.start_with?("!") }
        without = without.map { |glob| glob.delete_prefix("!") }
        frames = paths.map(&:first).uniq
        starts = new(:entry, entry)
        candidates(with, entry, share(paths, new(:process, without: without), starts)).each do |by, globs|
          own = new(by, globs, without: without, frames: frames)
          return own if frames.any? { |frame| own.own?(frame) }
        end
        new(:none, with, without: without, frames: frames)
      end

      # The share of the weight of stacks with a frame of the application. The outermost frame of a stack
      # does not count where it only starts the package (starts: its Own).
      def self.share(paths, own, starts)
        found = []
        parts = paths.each_with_index.map do |(frame, parent, weight), i|
          found[i] = standing(frame, parent && found[parent], own, starts)
          %i[outermost inside].include?(found[i]) ? weight : 0
        end
        whole = paths.sum(&:last)
        whole.zero? ? 0.0 : parts.sum.fdiv(whole)
      end

      # Whether a frame of the application is on a stack: :inside it, only :outermost, or :none. outer: the
      # same of the caller; nil without a caller.
      def self.standing(frame, outer, own, starts)
        return outer ? :inside : :outermost if own.own?(frame)

        outer.nil? || (outer == :outermost && starts.own?(frame)) ? :none : outer
      end
      private_class_method :standing

      def self.candidates(with, entry, share)
        return [[:glob, with]] if with.any?

        found = [[:process, []], [:entry, entry]]
        share < LEAST && entry.any? ? found.reverse : found
      end
      private_class_method :candidates

      # Whether a path matches a glob. * matches slashes, too. A glob that does not begin with / or *
      # matches the end of paths, and one without *, ? and [ also matches what is in that folder.
      def self.pattern(glob)
        anchored = glob.start_with?("/", "*") ? glob : "*/#{glob}"
        source = anchored.scan(/\[!?\]?[^\]]*\]|./m).map { |part| part_of_pattern(part) }.join
        source += "(?:/.*)?" unless glob.match?(WILD)
        /\A#{source}\z/m
      end

      def self.part_of_pattern(part)
        case part
        when "*" then ".*"
        when "?" then "."
        when SET then set(*Regexp.last_match.captures)
        else Regexp.escape(part)
        end
      end
      private_class_method :part_of_pattern

      def self.set(negated, inside)
        "[#{"^" if negated == "!"}#{inside.gsub(/[\[\]\\^&]/) { |one| "\\#{one}" }}]"
      end
      private_class_method :set

      def initialize(by, globs = [], without: [], frames: [])
        @by = by
        @patterns = globs.map { |glob| Own.pattern(glob) }
        @without = without.map { |glob| Own.pattern(glob) }
        @known = {}
        paths = frames.reject(&:what).map(&:path).uniq
        unmatched = globs.zip(@patterns).reject { |_, pattern| paths.any? { |path| pattern.match?(path) } }
                         .map(&:first)
        @globs, @unmatched = by == :entry ? [globs - unmatched, []] : [globs, unmatched]
      end

      # Whether files are chosen by globs, and no file matches any of them.
      def matches_nothing? = globs.any? && unmatched == globs

      # Whether the frame is the application's.
      def own?(frame)
        return false if frame.what || by == :none

        by == :process ? frame.own && !without?(frame.path) : matches?(frame.path)
      end

      def known? = by != :none

      # What the head of a table says.
      def text
        case by
        when :glob then "own: #{globs.join(", ")}"
        when :process then "own: the files that the process counts as the application's"
        when :entry then "own: #{globs.join(", ")} (the package that was started)"
        when :none then "own: not known"
        end
      end

      def to_h = {by: by.to_s, globs: globs}

      private

      def matches?(path)
        @known.fetch(path) do
          @known[path] = @patterns.any? { |pattern| pattern.match?(path) } && !without?(path)
        end
      end

      def without?(path) = @without.any? { |pattern| pattern.match?(path) }
    end
  end
end
