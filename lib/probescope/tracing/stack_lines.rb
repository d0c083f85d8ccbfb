# frozen_string_literal: true

require_relative "numbered"
require_relative "text"

module Probescope
  module Tracing
    # Reads the lines of stacks.bt, whose head describes them, in the order in which processes have
    # fired them, and hands the figures of each second to a Profile::Recorder.
    class StackLines
      # The most figures of one second of a process that are kept. A process has at most 16,384 cells.
      MOST = 1 << 17

      # {mark => how many figures such a line has behind the process and its number}
      FIGURES = {"f" => 6, "p" => 1, "r" => 1, "s" => 7, "=" => 8}.freeze

      # Lines that are kept of processes that are not traced: a process may be known to be traced only
      # after its first lines. The oldest process is forgotten where there are too many.
      WAITING_PROCESSES = 32
      WAITING_LINES = 4096

      # The sums of the interval that a line "=" tells.
      SUMS = %i[wall_ns cpu_ns looking_ns dropped missed taken].freeze

      # One process. began: when its first second began, nil before. from: when the last second ended.
      # figures: those of the second that goes on. weights: {kind's number => sum of the seconds}.
      # beyond: the number of figures beyond MOST. The others: SUMS.
      State = Struct.new(:numbered, :began, :from, :figures, :weights, :beyond, *SUMS)

      # recorder: has the methods path, file, request and second of Profile::Recorder. process: returns
      # the process for the number that bpftrace prints, nil for one that is not traced. The block is
      # called with the process and its threads at the end of each of its seconds.
      def initialize(recorder, process: ->(pid) { pid }, &second)
        @recorder = recorder
        @process = process
        @second = second
        @waiting = {} # {pid => [[number, line], ...]} of processes that are not traced, or not yet
        @states = Hash.new do |all, pid|
          all[pid] = State.new(Numbered.new, nil, nil, [], Hash.new(0), 0, *SUMS.map { 0 })
        end
      end

      # {pid => State}
      attr_reader :states

      # Takes a line.
      def receive(text)
        head, _, name = text.partition("\t")
        mark, *words = head.split
        pid, number, *figures = words.map { |word| Integer(word, exception: false) }
        return if number.nil? || figures.include?(nil) || FIGURES[mark] != figures.size

        line = [mark, figures, Text.without_mark(name.scrub)]
        return wait(pid, number, line) unless (process = @process[pid])

        @waiting.delete(pid)&.each { |one| push(process, *one) }
        push(process, number, line)
      end

      # For the end of the trace. last: the number of the process's last line, or nil.
      def rest(pid, last) = @states[pid].numbered.rest(last) { |line| take(pid, line) }

      # The number of lines that did not arrive.
      def missing(pid, last) = @states[pid].numbered.missing(last)

      private

      def push(pid, number, line) = @states[pid].numbered.push(number, line) { |one| take(pid, one) }

      def wait(pid, number, line)
        mark, figures, name = line
        case mark
        when "f" then @recorder.path_of_another(*description(figures, name))
        when "p" then @recorder.file_of_another(figures.first, name)
        end
        @waiting.shift if !@waiting.key?(pid) && @waiting.size >= WAITING_PROCESSES
        lines = @waiting[pid] ||= []
        lines << [number, line] if lines.size < WAITING_LINES
      end

      # line: [mark, figures, name], or the number of lost lines.
      def take(pid, line)
        return if line.is_a?(Integer)

        mark, figures, name = line
        case mark
        when "f" then @recorder.path(*description(figures, name))
        when "p" then @recorder.file(figures.first, name)
        when "r" then @recorder.request(figures.first, name)
        when "s" then grew(@states[pid], figures)
        when "=" then ended(pid, *figures)
        end
      end

      # Arguments of Profile::Recorder#path.
      def description(figures, name)
        id, parent, *others = figures
        [id, parent, name, *others]
      end

      def grew(state, figures)
        return state.beyond += 1 if state.figures.size >= MOST

        state.figures << figures
      end

      # A flush. The first one of a process begins its first second. Where the line of a flush was lost,
      # the next one ends a longer second: the sums are those since the first flush.
      def ended(pid, _sequence, cut, *sums)
        state = @states[pid]
        state.began ||= state.from = cut - sums.first
        SUMS.zip(sums) { |field, sum| state[field] = sum }
        second(pid, state, cut) if cut > state.from
        state.from = cut
        state.figures = []
      end

      def second(pid, state, cut)
        state.figures.each { |kind, *, weight, _looked| state.weights[kind] += weight }
        @recorder.second(pid, state.from, cut, state.figures)
        @second&.call(pid, state.figures.map { |figures| figures[2] }.uniq)
      end
    end
  end
end
