# frozen_string_literal: true

TRUTH = {"TRUTH_SEEDS" => "10", "TRUTH_SECONDS" => "2", "TRUTH_SAMPLES" => "3000", "TRUTH_ONLY" => "all",
         "TRUTH_LANGUAGES" => "all", "TRUTH_JOBS" => "2", "TRUTH_KEEP" => "0"}.freeze

desc "Compare the report of each command with the counts of programs of known work; write docs/truth.md " \
     "(as root; RUBY=, PYTHON=, TRUTH_SEEDS=10, TRUTH_SECONDS=2, " \
     "TRUTH_SAMPLES=3000 (0: without hot and lines), TRUTH_ONLY=cpu,pool, " \
     "TRUTH_LANGUAGES=Python, TRUTH_JOBS=2: programs at a time, " \
     "TRUTH_KEEP=1: keep the last run's results of other programs)"
task truth: :compile do
  require_relative "truth_page"
  require_relative "truth_run"
  settings = TRUTH.merge(ENV.to_h.slice(*TRUTH.keys))
  failed = TruthRun.new(settings).run
  TruthPage.write
  abort "some figures are wrong: #{failed.join("; ")}: see above and docs/truth.md" if failed.any?
end

namespace :truth do
  desc "Write docs/truth.md again from the results of the last run (tmp/truth.jsonl)"
  task :report do
    require_relative "truth_page"
    TruthPage.write
  end
end
