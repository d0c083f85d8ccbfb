# frozen_string_literal: true

module Truth
  # One figure beside its truth.
  Figure = Struct.new(:what, :said, :truth, keyword_init: true) do
    # truth: a Range of counts, or {share: 0.31, points: 5}.
    def right? = truth.is_a?(Range) ? truth.cover?(said || -1) : (said.to_f - truth[:share]).abs * 100 <= truth[:points]

    # How far it is off: counts as a part of the nearest end of the range, shares in points.
    def error
      return (said.to_f - truth[:share]).abs * 100 unless truth.is_a?(Range)
      return 0 if right?

      nearest = (said || 0) < truth.begin ? truth.begin : truth.end
      ((said || 0) - nearest).abs.fdiv([nearest, 1].max) * 100
    end

    def to_s
      if truth.is_a?(Range)
        "#{what}: said #{said.inspect}, in truth #{truth}"
      else
        format("%s: said %.3f, in truth %.3f", what, said.to_f,
               truth[:share])
      end
    end
  end

  # What a command told of one process, held against that process's ledger. A subclass for each command.
  class Check
    # The flush at each end of an interval takes this long at most, on a machine that is busy with other things.
    SLACK = 50_000_000

    # answer: the command's JSON. interval: [begin, end] in ns of CLOCK_MONOTONIC. rows: those of the process.
    def initialize(language, answer, interval, rows, ledger)
      @language = language
      @answer = answer
      @from, @to = interval
      @rows = rows
      @ledger = ledger
    end

    private

    def count(what, said, counter) = Figure.new(what: what, said: said, truth: growth(counter))
    def growth(counter) = @ledger.growth(counter, @from, @to, SLACK)
    def estimate(counter) = @ledger.estimate(counter, @from, @to)
    def share(what, said, share) = Figure.new(what: what, said: said, truth: {share: share, points: 5})

    def at(mark) = @rows.select { |row| row["line"] == line_of(mark) && row["file"].to_s.end_with?(@language.file("work")) }

    def line_of(mark)
      @language.lines("work").index { |line| line.match?(/# #{mark}$/) || line.include?(mark) } + 1
    end

    def sum(rows, key = "count") = rows.sum { |row| row[key] || 0 }
  end

  class CallsCheck < Check
    def figures
      @ledger.names("calls:").flat_map do |name|
        row = @rows.find { |one| one["function"] == @language.function(name) } || {}
        [count("calls of #{name}", row["calls"] || 0, "calls:#{name}"), *elapsed(name, row)]
      end
    end

    private

    # Where a call takes long enough that the program's own clocks are no large part of it.
    def elapsed(name, row)
      truth = estimate("wall:#{name}")
      return [] if truth < 0.05 * (@to - @from) || !row["calls"]

      [share("elapsed of #{name}, of the interval", row["elapsed_ns"].fdiv(@to - @from), truth / (@to - @from))]
    end
  end

  class ExceptionsCheck < Check
    def figures
      raised = @rows.select { |row| row["type"].to_s.end_with?("TruthError") }
      [count("raised", sum(raised.select { |row| row["line"] == line_of("raised") }), "raised"),
       count("raised anywhere", sum(raised), "raised")]
    end
  end

  class AllocCheck < Check
    def figures
      rows = at("made")
      rows = rows.select { |row| row["class"].to_s.end_with?("Thing") } if rows.any? { |row| row["class"].to_s.end_with?("Thing") }
      [count("objects", rows.map { |row| row["count"] }.max || 0, "things")]
    end
  end

  class BacktracesCheck < Check
    def figures = [count("texts", sum(at("told")), "texts")]
  end

  class SlowCheck < Check
    def figures
      naps = @rows.count { |row| row["function"] == @language.function("nap") }
      [count("calls that took 10 ms", naps, "calls:nap")]
    end
  end

  # Shares of the process's CPU time. A sample has an error of its own: with fewer than 3,000, 5 points are no fault.
  class HotCheck < Check
    def figures
      all = estimate("cpu")
      @ledger.names("cpu:").map do |name|
        row = @rows.find { |one| one["function"] == @language.function(name) } || {}
        share("self share of #{name}", row["self_share"] || 0, estimate("cpu:#{name}") / all)
      end
    end
  end

  CHECKS = {"calls" => CallsCheck, "exceptions" => ExceptionsCheck, "alloc" => AllocCheck, "backtraces" => BacktracesCheck,
            "slow" => SlowCheck, "hot" => HotCheck}.freeze
end
