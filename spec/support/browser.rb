# frozen_string_literal: true

require_relative "paths"

module Support
  # Debian's Chromium, by ferrum, which `bin/setup page` installs into vendor/page. An example with
  # `browser: true` is skipped without them.
  module Browser
    CHROMIUM = "/usr/bin/chromium"
    GEMS = File.join(ROOT, "vendor/page")
    # Chromium's own sandbox does not run as root.
    OPTIONS = {"no-sandbox" => nil, "disable-gpu" => nil}.freeze

    module_function

    def require!
      yield "needs a browser: #{reason} (bin/setup page)" if reason
    end

    # Returns nil if there is a browser.
    def reason
      return "no #{CHROMIUM}" unless File.executable?(CHROMIUM)

      # Bundler hides gems that are not in the Gemfile.
      found = Dir["#{GEMS}/specifications/*.gemspec"].map { |path| Gem::Specification.load(path) }
      $LOAD_PATH.concat(found.flat_map(&:full_require_paths) - $LOAD_PATH)
      require "ferrum"
      nil
    rescue LoadError => e
      "#{e.message} in vendor/page"
    end

    def start
      Ferrum::Browser.new(browser_path: CHROMIUM, browser_options: OPTIONS, window_size: [1280, 800],
                          timeout: 60, process_timeout: 60)
    end

    # Yields a new tab with what it reports: the addresses of requests, errors, and messages of the
    # console, which tell what the Content-Security-Policy refused.
    def tab(browser)
      context = browser.contexts.create
      tab = context.create_page
      told = []
      tab.command("Log.enable")
      tab.on("Log.entryAdded") { |event| told << event.dig("entry", "text") }
      tab.on("Runtime.exceptionThrown") { |event| told << event.dig("exceptionDetails", "text") }
      tab.on("Runtime.consoleAPICalled") { |event| told << event["args"].to_s }
      tab.on("Network.requestWillBeSent") { |event| told << event.dig("request", "url") }
      yield tab, told
    ensure
      browser.contexts.dispose(context.id) if context
    end
  end
end
