# frozen_string_literal: true

# What a Rails application's config/boot.rb does: Bundler, bootsnap, then the gems of the Gemfile.
# bootsnap keeps each file's compiled form in tmp/cache: the next start need not parse it again.
ENV["BUNDLE_GEMFILE"] ||= File.expand_path("../Gemfile", __dir__)
require "bundler/setup"
require "bootsnap"
Bootsnap.setup(cache_dir: File.expand_path("../tmp/cache", __dir__), development_mode: false,
               load_path_cache: true, compile_cache_iseq: true, compile_cache_yaml: false)
Bundler.require
