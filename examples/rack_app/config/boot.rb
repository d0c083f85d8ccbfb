# frozen_string_literal: true

# The same as in a Rails application's config/boot.rb: Bundler, bootsnap, the Gemfile's gems.
# bootsnap keeps compiled files in tmp/cache, so the next start need not parse them again.
ENV["BUNDLE_GEMFILE"] ||= File.expand_path("../Gemfile", __dir__)
require "bundler/setup"
require "bootsnap"
Bootsnap.setup(cache_dir: File.expand_path("../tmp/cache", __dir__), development_mode: false,
               load_path_cache: true, compile_cache_iseq: true, compile_cache_yaml: false)
Bundler.require
