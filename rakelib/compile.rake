# frozen_string_literal: true

require "rake/extensiontask"

# Objects stay in tmp/ and the library in lib/probescope/, each in a directory of its Ruby, so that
# Rubies share a checkout.
Rake::ExtensionTask.new("probescope") do |ext|
  ext.ext_dir = "ext/probescope"
  ext.lib_dir = File.join("lib/probescope", RbConfig::CONFIG.values_at("ruby_version", "arch").join("-"))
  # The core is compiled into the extension, so a change there makes it again as well.
  ext.source_pattern = "{,../core/}*.{c,h}"
end

# extconf.rb lists the sources, so a new file (which touches its directory) makes a new Makefile.
Rake::Task.tasks.grep(Rake::FileTask).select { |task| task.name.end_with?("/Makefile") }
          .each { |task| task.enhance(%w[ext/core ext/probescope]) }
