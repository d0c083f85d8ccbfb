# frozen_string_literal: true

require "rake/extensiontask"

# Objects stay in tmp/ with a directory for each Ruby version; lib/probescope/probescope.so is the one of the Ruby that
# compiled last, which is why bin/test compiles first.
Rake::ExtensionTask.new("probescope") do |ext|
  ext.ext_dir = "ext/probescope"
  ext.lib_dir = "lib/probescope"
  # The core is compiled into the extension, so a change there makes it again as well.
  ext.source_pattern = "{,../core/}*.{c,h}"
end
