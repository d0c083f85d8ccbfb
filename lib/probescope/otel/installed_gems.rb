# frozen_string_literal: true

require "rbconfig"
require "rubygems"
require_relative "../tracing/caller"
require_relative "../tracing/error"
require_relative "../tracing/private_group"
require_relative "../tracing/tool"

module Probescope
  module Otel
    # Finds OpenTelemetry's gems. Under sudo, they may be installed for the user who called sudo. A
    # gem and its gemspec are code, so root loads none from a user's home. The exporter becomes that
    # user before it loads them.
    class InstalledGems
      NAMES = %w[opentelemetry-sdk opentelemetry-exporter-otlp opentelemetry-logs-sdk
                 opentelemetry-exporter-otlp-logs opentelemetry-metrics-sdk
                 opentelemetry-exporter-otlp-metrics].freeze

      # Etc::Passwd of the user whose gems are loaded; nil for the gems of this process.
      attr_reader :user

      # Raises Error when the gems are not found.
      def self.find
        missing = NAMES.reject do |gem|
          Gem.loaded_specs.key?(gem) || Gem::Specification.find_all_by_name(gem).any?
        end
        return new(nil, nil) if missing.empty?

        user = Tracing::Caller.user
        folders = user ? of(user) : []
        folder = folders.find { |one| missing.all? { |gem| gem_in?(one, gem) } } or
          raise absent(missing, folders, user)
        weak = weakness(folder, user) or return new(user, folder)

        raise Tracing::Error.new("#{user.name}'s gems are not loaded: #{weak}", "chmod -R go-w #{folder}")
      end

      # The folders into which RubyGems installs for a user. Gem.user_dir differs by version.
      def self.of(user)
        homes = %w[.local/share/gem .gem]
        homes.map { |home| File.join(user.dir, home, Gem.ruby_engine, Gem.ruby_api_version) }
      end

      # Checks only the name of the file, because reading a gemspec executes it.
      def self.gem_in?(folder, gem) = Dir.glob("#{folder}/specifications/#{gem}-[0-9]*.gemspec").any?

      # Why a user other than that one could put a gem there, or nil.
      def self.weakness(folder, user)
        places = Tracing::Tool.way(folder) + Dir.glob("#{folder}/{specifications,gems,gems/*,extensions}")
        places.each do |place|
          stat = File.lstat(place)
          return "#{place} belongs to user #{stat.uid}" unless [0, user.uid].include?(stat.uid)
          if !stat.symlink? && Tracing::PrivateGroup.writable_by_others?(stat, [user.uid])
            return "others than its owner may write to #{place}"
          end
        end
        nil
      end

      def self.absent(missing, folders, user)
        looked = [*Gem.path, *folders]
        sudo = "sudo " if user || !File.writable?(Gem.dir)
        install = "#{sudo}#{RbConfig.ruby} -S gem install #{missing.join(" ")}"
        Tracing::Error.new("the bridge needs gems that are not installed for #{RbConfig.ruby}: " \
                        "#{missing.join(", ")}; looked in #{looked.join(", ")}", install)
      end

      def initialize(user, folder)
        @user = user
        @folder = folder
      end

      # The caller must already run as that user.
      def use
        if @folder
          Gem.paths = {"GEM_HOME" => @folder,
                       "GEM_PATH" => [@folder, *Gem.path].join(File::PATH_SEPARATOR)}
        end
      end
    end
  end
end
