# frozen_string_literal: true

module Truth
  # The probe of a command without which it cannot say anything.
  PROBES = {"calls" => "function__stats", "exceptions" => "exception__stats", "alloc" => "object__stats",
            "backtraces" => "backtrace__done", "slow" => "function__slow10ms", "hot" => "sample__stats"}.freeze

  # Keeps what was found, for `rake truth`.
  module Results
    PATH = File.join(Support::ROOT, "tmp/truth.jsonl")

    def self.add(language, temperament, command, seed, figures, lost)
      FileUtils.mkdir_p(File.dirname(PATH))
      worst = figures.max_by(&:error)
      File.open(PATH, "a") do |file|
        file.puts(JSON.generate(language: language.name, temperament: temperament, command: command, seed: seed,
                                figures: figures.size, wrong: figures.count { |figure| !figure.right? },
                                worst: worst&.to_s, error: worst&.error&.round(2), kind: worst&.truth.is_a?(Range) ? "percent" : "points",
                                lost: lost))
      end
    end
  end
end
