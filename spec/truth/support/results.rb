# frozen_string_literal: true

module Truth
  # The probe of a command without which it cannot say anything.
  PROBES = {"calls" => "function__stats", "exceptions" => "exception__stats", "alloc" => "object__stats",
            "backtraces" => "backtrace__done", "slow" => "function__slow10ms", "hot" => "sample__stats", "lines" => "sample",
            "requests" => "request__done", "gc" => "gc__done", "stat" => "function__stats", "latency" => "function__stats",
            "flow" => "function__entry"}.freeze

  # What one command said of one program: the figures, and what it said that it lost.
  Finding = Struct.new(:language, :temperament, :command, :seed, :figures, :lost, :samples, keyword_init: true) do
    def wrong = figures.reject(&:right?)
    def name = "#{language}, #{temperament}, #{command}"
  end

  # Comparisons that are known to be outside, and why: {"Ruby, pool, hot": reason}
  KNOWN = JSON.parse(File.read(File.expand_path("../known.json", __dir__))).freeze
  def self.known(finding) = KNOWN[finding.name.sub(" with YJIT", "")]

  # Shares of samples of several seeds as if they were one run: each seed has too few samples by itself.
  module Samples
    module_function

    def together(findings)
      total = findings.sum(&:samples)
      figures = findings.first.figures.map do |first|
        said, truth = %i[said truth].map do |key|
          findings.sum { |one| one.figures.find { |figure| figure.what == first.what }[key] * one.samples } / total
        end
        Figure.share(first.what, said, truth)
      end
      findings.first.dup.tap { |one| one.to_h.merge(figures: figures).each { |key, value| one[key] = value } && one.samples = total }
    end
  end

  # Keeps what was found, for `rake truth`.
  module Results
    PATH = File.join(Support::ROOT, "tmp/truth.jsonl")

    def self.add(finding)
      FileUtils.mkdir_p(File.dirname(PATH))
      worst = finding.figures.max_by { |figure| [figure.right? ? 0 : 1, figure.error] }
      biased = finding.figures.filter_map(&:bias).max_by(&:abs)
      row = {**finding.to_h.except(:figures), figures: finding.figures.size, wrong: finding.wrong.size,
                                              worst: worst&.to_s, error: worst&.error&.round(2), kind: worst&.share ? "points" : "percent",
                                              bias: biased&.round(2), samples: finding.samples&.round, known: Truth.known(finding)}
      File.open(PATH, "a") { |file| file.puts(JSON.generate(row)) }
    end
  end
end
