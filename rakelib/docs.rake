# frozen_string_literal: true

require_relative "documented_runs"
require_relative "site"
%w[paths await child elf info python rack_app flask_app].each do |name|
  require_relative "../spec/support/#{name}"
end

namespace :docs do
  desc "Check the links of every page, and run every command that a page shows, as root with bpftrace " \
       "(PAGES=docs/tutorial/*.md: only these)"
  task :check do
    pages = ENV["PAGES"] ? Dir[ENV["PAGES"]] : Documents.kept
    broken = Documents.pages.flat_map do |page|
      Documents.broken_links(page).map { |link| [page, "broken link #{link}"] }
    end
    failures = broken + DocumentedRuns.check(pages)
    abort failures.map { |place, message| "#{place}: #{message}" }.join("\n") if failures.any?
  end

  desc "Replace the outputs that a page marks with `retaken`, as root with bpftrace (PAGES=...: only these)"
  task :runs do
    pages = ENV["PAGES"] ? Dir[ENV["PAGES"]] : Documents.kept
    retaken = pages.select { |page| Documents.blocks(page).any?(&:retaken?) }
    retaken.each { |page| DocumentedRuns.retake(page) }
  end

  desc "Build the pages as a site in #{Site::FOLDER}, without a network (Debian and Ubuntu: mkdocs)"
  task(:site) { Site.build }
end
