# frozen_string_literal: true

module Truth
  # The counters of a program, as spec/truth/programs/ledger.rb wrote them. Computes how much a
  # counter grew in an interval.
  class Ledger
    def initialize(path)
      @pages = JSON.parse(File.read(path)).fetch("pages")
    end

    # Returns the range of a counter's growth. from, to: ns of CLOCK_MONOTONIC. slack: uncertainty
    # of the interval's ends in ns. begun: the counter of begun events, if `counter` has ended
    # events and may miss those that began before the interval. Counters are exact only at the
    # moments of notes.
    def growth(counter, from, to, slack, begun: counter)
      least = at_least(counter, to - slack) - at_most(begun, from + slack)
      [least, 0].max..(at_most(counter, to + slack) - at_least(counter, from - slack))
    end

    # The best estimate: between two notes a counter grows evenly.
    def estimate(counter, from, to, begun: counter) = at(counter, to) - at(begun, from)

    # Names after a prefix, such as those of functions after "calls:".
    def names(prefix)
      counters = @pages.filter_map { |notes| notes.last && notes.last[1].keys }.flatten.uniq
      counters.select { |counter| counter.start_with?(prefix) }.map do |counter|
        counter.delete_prefix(prefix)
      end
    end

    # Value of a counter at the end.
    def total(counter) = @pages.sum { |notes| value(notes.last, counter) }

    # Whether the ledger covers this moment.
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
