# frozen_string_literal: true

desc "Measure what it costs beside its peers, and write docs/performance.md (as root; RUBY=/path measures another Ruby)"
task bench: :compile do
  ruby "bench/overhead.rb"
end

namespace :bench do
  desc "Measure how long it takes to attach to 10,000 methods (as root; RUBY=/path RUBY_OPTIONS=--yjit adds another Ruby)"
  task attach: :compile do
    ruby "bench/attach.rb"
  end

  desc "Measure what it costs a web application under load, and write it into docs/performance.md (as root; about five minutes)"
  task web: :compile do
    ruby "bench/web.rb"
  end
end
