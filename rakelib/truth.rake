# frozen_string_literal: true

TRUTH = {"TRUTH_SEEDS" => "10", "TRUTH_SECONDS" => "2", "TRUTH_SAMPLES" => "3000", "TRUTH_ONLY" => "all"}.freeze

desc "Hold what each command reports against what programs of known work count, and write docs/truth.md (as root; hours on a busy " \
     "machine; RUBY=, PYTHON=, TRUTH_SEEDS=10, TRUTH_SECONDS=2, TRUTH_SAMPLES=3000 (0: without hot and lines), TRUTH_ONLY=cpu,pool)"
task truth: :compile do
  require_relative "truth_page"
  settings = TRUTH.merge(ENV.to_h.slice(*TRUTH.keys))
  FileUtils.rm_f(TruthPage::RESULTS)
  held = system(settings, RbConfig.ruby, "-S", "bundle", "exec", "rspec", "spec/truth")
  TruthPage.write(settings)
  abort "some figures are not the truth: see above and docs/truth.md" unless held
end

namespace :truth do
  desc "Write docs/truth.md again from what the last run found (tmp/truth.jsonl), with the settings that it had"
  task :report do
    require_relative "truth_page"
    TruthPage.write(TRUTH.merge(ENV.to_h.slice(*TRUTH.keys)))
  end
end
