# frozen_string_literal: true

desc "Measure what it costs beside its peers, and write docs/performance.md (as root; RUBY=/path measures another Ruby)"
task bench: :compile do
  ruby "bench/overhead.rb"
end
