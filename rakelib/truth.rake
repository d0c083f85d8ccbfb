# frozen_string_literal: true

desc "Hold what each command reports against what programs of known work count, and write docs/truth.md (as root; RUBY=, PYTHON=, " \
     "TRUTH_SEEDS=10, TRUTH_SECONDS=5, TRUTH_SAMPLES=3000, TRUTH_ONLY=cpu,pool)"
task truth: :compile do
  require_relative "truth_page"
  settings = {"TRUTH_SEEDS" => "1", "TRUTH_SECONDS" => "2", "TRUTH_SAMPLES" => "0",
              "TRUTH_ONLY" => "all"}.merge(ENV.to_h.slice("TRUTH_SEEDS", "TRUTH_SECONDS", "TRUTH_SAMPLES", "TRUTH_ONLY"))
  FileUtils.rm_f(TruthPage::RESULTS)
  held = system(settings, RbConfig.ruby, "-S", "bundle", "exec", "rspec", "spec/truth")
  TruthPage.write(settings)
  abort "some figures are not the truth: see above and docs/truth.md" unless held
end
