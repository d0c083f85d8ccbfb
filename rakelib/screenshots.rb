# frozen_string_literal: true

require "fileutils"
require "tmpdir"
%w[paths await child elf info python rack_app flask_app browser].each do |name|
  require_relative "../spec/support/#{name}"
end

# Makes docs/img: pages of recordings of examples/rack_app and examples/flask_app under a load, and
# their comparisons with the fixed applications, as Chromium shows them. Needs root, bpftrace,
# `bin/setup page` and pngquant, which makes an image a third as large.
module Screenshots
  FOLDER = File.join(Support::ROOT, "docs/img")
  APPLICATIONS = {"rack_app" => Support::RackApp, "flask_app" => Support::FlaskApp}.freeze
  # Both versions of an application answer so many requests a second.
  RATE = 250
  SECONDS = 20
  SIZE = {width: 1280, height: 1000, deviceScaleFactor: 1, mobile: false}.freeze
  # Bytes of an image.
  MOST = 150_000

  extend Support::Await

  module_function

  def make
    [Support::Browser, Support::FlaskApp].each { |needed| needed.require! { |reason| abort reason } }
    FileUtils.mkdir_p(FOLDER)
    @browser = Support::Browser.start
    APPLICATIONS.each do |name, application|
      Dir.mktmpdir { |folder| of(name, application, folder) }
    end
  ensure
    @browser&.quit
  end

  def of(name, application, folder)
    before = record(application.new, "#{folder}/before.pb.gz")
    after = record(application.new(env: {"FIXED" => "parser,checksum"}), "#{folder}/after.pb.gz")
    probescope("convert", before, "-o", "#{folder}/recording.html")
    probescope("diff", before, after, "-o", "#{folder}/diff.html")
    %w[recording diff].each do |page|
      take("#{folder}/#{page}.html", "#{name}-#{page}.png", dark: name == "flask_app")
    end
  end

  # Returns the file.
  def record(application, file)
    application.ready
    load = application.load(seconds: 3600, rate: RATE)
    probescope("record", "-p", application.pid.to_s, "--workers", "-d", SECONDS.to_s, "-o", file)
    file
  ensure
    load&.kill_all
    application.kill_all
  end

  def probescope(*command)
    system(RbConfig.ruby, Support::EXE, *command, out: File::NULL, exception: true)
  end

  # What a reader sees without scrolling.
  def take(page, image, dark:)
    path = File.join(FOLDER, image)
    Support::Browser.tab(@browser) do |tab|
      scheme = {name: "prefers-color-scheme", value: dark ? "dark" : "light"}
      tab.command("Emulation.setEmulatedMedia", features: [scheme])
      tab.command("Emulation.setDeviceMetricsOverride", **SIZE)
      tab.go_to("file://#{page}")
      await("the page") { tab.evaluate("document.documentElement.dataset.ready") == "yes" }
      tab.screenshot(path: path)
    end
    system("pngquant", "--force", "--strip", "--output", path, path, exception: true)
    abort "#{path} has #{File.size(path)} bytes" if File.size(path) > MOST
    puts "#{path}, #{File.size(path)} bytes"
  end
end
