# frozen_string_literal: true

require "rake/extensiontask"

# Objects are kept in tmp/, and the library in lib/probescope/, each in a directory of its Ruby, so
# that several Rubies can share a checkout.
Rake::ExtensionTask.new("probescope") do |ext|
  ext.ext_dir = "ext/ruby"
  ext.lib_dir = File.join("lib/probescope", RbConfig::CONFIG.values_at("ruby_version", "arch").join("-"))
  # The core is compiled into the extension, so a change of the core recompiles the extension.
  ext.source_pattern = "{,../core/*/,../libstapsdt/}*.{c,h}"
end

# extconf.rb lists the sources, so the Makefile must be remade when there is a new file. A new file
# changes the time of its directory.
Rake::Task.tasks.grep(Rake::FileTask).select { |task| task.name.end_with?("/Makefile") }
          .each { |task| task.enhance(Dir["ext/{core/*,libstapsdt,ruby}"]) }
