# frozen_string_literal: true

module Truth
  # What a program counted about itself, as spec/truth/programs/ledger.rb wrote it: how much a
  # counter grew in an interval.
  class Ledger
    def initialize(path)
      @pages = JSON.parse(File.read(path)).fetch("pages")
    end

    # The range in which the growth of a counter lies. from, to: ns of CLOCK_MONOTONIC. slack: ns by
    # which the ends of the interval are uncertain. begun: the counter of what began, where one
    # counts what ended, and what began before the interval may be missed. What was counted is known
    # at the moments of the notes alone.
    def growth(counter, from, to, slack, begun: counter)
      least = at_least(counter, to - slack) - at_most(begun, from + slack)
      [least, 0].max..(at_most(counter, to + slack) - at_least(counter, from - slack))
    end

    # The best guess: between two notes a counter grows evenly.
    def estimate(counter, from, to, begun: counter) = at(counter, to) - at(begun, from)

    # Names that follow a prefix, such as those of the functions after "calls:".
    def names(prefix)
      counters = @pages.filter_map { |notes| notes.last && notes.last[1].keys }.flatten.uniq
      counters.select { |counter| counter.start_with?(prefix) }.map do |counter|
        counter.delete_prefix(prefix)
      end
    end

    # How much a counter grows at least in any interval of that many ns between these moments.
    def least_growth(counter, from, to, length)
      moments = @pages.flatten(1).map(&:first).select { |time| (from..(to - length)).cover?(time) }
      [from, *moments].map { |time| growth(counter, time, time + length, 0).begin }.min
    end

    # What a counter had come to at the end.
    def total(counter) = @pages.sum { |notes| value(notes.last, counter) }

    # Does it cover that moment, so that its counters are known there?
    def reaches?(moment) = @pages.filter_map { |notes| notes.last&.first }.max.to_i >= moment

    private

    def at_least(counter, moment) = @pages.sum { |notes| value(before(notes, moment), counter) }
    def at_most(counter, moment) = @pages.sum { |notes| value(after(notes, moment) || notes.last, counter) }

    def at(counter, moment)
      @pages.sum do |notes|
        earlier, later = before(notes, moment), after(notes, moment)
        next value(later || earlier, counter) unless earlier && later

        part = (moment - earlier[0]).fdiv(later[0] - earlier[0])
        value(earlier, counter) + (value(later, counter) - value(earlier, counter)) * part
      end
    end

    def value(note, counter) = note ? note[1].fetch(counter, 0) : 0

    def after(notes, moment) = notes.bsearch { |time, _| time > moment }

    def before(notes, moment)
      index = notes.bsearch_index { |time, _| time > moment } || notes.size
      notes[index - 1] if index.positive?
    end
  end
end
