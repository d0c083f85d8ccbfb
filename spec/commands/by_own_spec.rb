# frozen_string_literal: true

require "spec_helper"
require "support/host_helpers"

# A program of the application calls a library twice, from two functions with three and one parts of
# the work. The library works by itself, too.
RSpec.describe "hot and lines by own code", :bpf do
  languages = {
    "Ruby" => {
      library: ["lib.rb", <<~RUBY],
        module Lib
          def self.crunch = (n = 0; n += 1 while n < 2_000)
          def self.serve = Thread.new { loop { 4.times { yield }; crunch } }.join
        end
      RUBY
      app: ["app.rb", <<~RUBY],
        require File.join(ARGV[0], "lib")
        class Shop
          def large = 3.times { Lib.crunch }
          def small = Lib.crunch
        end
        shop = Shop.new
        puts "ready"
        $stdout.flush
        Lib.serve do
          shop.large
          shop.small
        end
      RUBY
      large: "Shop#large", small: "Shop#small", crunch: "Lib.crunch"
    },
    "Python" => {
      library: ["lib.py", <<~PYTHON],
        import threading
        def crunch():
            n = 0
            while n < 2_000: n += 1
        def work(block):
            while True:
                for _ in range(4): block()
                crunch()
        def serve(block):
            thread = threading.Thread(target=work, args=(block,))
            thread.start()
            thread.join()
      PYTHON
      app: ["app.py", <<~PYTHON],
        import sys
        sys.path.insert(0, sys.argv[1])
        import lib
        class Shop:
            def large(self):
                for _ in range(3): lib.crunch()
            def small(self): lib.crunch()
        shop = Shop()
        def block():
            shop.large()
            shop.small()
        print("ready", flush=True)
        lib.serve(block)
      PYTHON
      large: "Shop.large", small: "Shop.small", crunch: "lib.crunch"
    }
  }

  before do
    @folder = Dir.mktmpdir
    FileUtils.mkdir_p([File.join(@folder, "app"), File.join(@folder, "vendor/lib-1.0")])
  end
  after { FileUtils.rm_rf(@folder) }

  # often: whether the library works by itself after each of the application's turns.
  def start(about, often: false)
    name, text = about[:library]
    text = text.sub("4.times", "1.times").sub("range(4)", "range(1)") if often
    File.write(File.join(@folder, "vendor/lib-1.0", name), text)
    name, text = about[:app]
    File.write(File.join(@folder, "app", name), text)
    target(File.join(@folder, "app", name), File.join(@folder, "vendor/lib-1.0")).ready
  end

  def shares(answer, key = "self_share")
    answer["rows"].to_h { |row| [row["function"] || "outside", row[key]] }
  end

  # By chance alone, 100 samples deviate by more than 16 points in one run of 1,000.
  def within(answer, expected)
    found = shares(answer)
    expected.each { |function, share| expect(found.fetch(function)).to be_within(0.16).of(share) }
    expect(found.values.sum).to be_within(0.001).of(1)
  end

  def traced(command, process)
    answer = nil
    sampled(100, [3, 20]) do |seconds|
      answer = probescope(command, "-p", process.pid, "-d", seconds, "--json").json
      answer["rows"]
    end
    answer
  end

  languages.each do |language, about|
    it "charge what a library of #{language} costs to the code that called it; all shares are the whole" do
      process = start(about)
      answer = traced("hot", process)
      expect(answer).to include("by" => "own", "own" => {"by" => "process", "globs" => []})
      within(answer, about[:large] => 12 / 17.0, about[:small] => 4 / 17.0, "outside" => 1 / 17.0)
      large = answer["rows"].first
      expect(large).to include("function" => about[:large], "outside" => false)
      expect(large["called"].first["function"]).to eq(about[:crunch]).or end_with("#times")
      outside = answer["rows"].find { |row| row["outside"] }
      expect(outside["called"].map { |one| one["function"] }).to include(about[:crunch])

      within(traced("lines", process),
             about[:large] => 12 / 17.0, about[:small] => 4 / 17.0, "outside" => 1 / 17.0)
    end

    it "say below the table of #{language} what is outside, and take other files by --own" do
      process = start(about, often: true) # 1 / 5 of the samples, so that some are in the table
      table = probescope("hot", "-p", process.pid, "-d", 5)
      expect(table.out).to match(/^own: the files that the process counts as the application's$/)
      expect(table.out).to match(/^outside of the application: [\d.]+ % \(.*crunch/)
      library = probescope("hot", "-p", process.pid, "-d", 3, "--own", "*/lib-1.0/*", "--json").json
      expect(library["own"]).to eq("by" => "glob", "globs" => ["*/lib-1.0/*"])
      expect(shares(library)[about[:crunch]]).to be > 0.7
      none = probescope("hot", "-p", process.pid, "-d", 2, "--own", "nowhere/*", "--json")
      expect(none.json["by"]).to eq("self")
      expect(none.err).to match(%r{--own nowhere/\*: no file matches; near: })
      itself = probescope("hot", "-p", process.pid, "-d", 2, "--by", "self", "--json").json
      expect(itself["by"]).to eq("self")
      expect(shares(itself)[about[:crunch]]).to be > 0.7
    end
  end

  # The gem's command, and the wheel's on the same process.
  def both(command, process, seconds, *options)
    words = [command, "-p", process.pid, "-d", seconds, *options, "--json"]
    wheel = start_wheel("trace", *words)
    [probescope(*words), result(wheel)]
  end

  def start_wheel(*words)
    env = Support.plain_env.merge(Support::Python.env(loaded: false))
    keep(Support::Child.new(Support::Python.interpreter, "-m", "probescope", *words.map(&:to_s), env: env))
  end

  def result(child) = Support::Processes::Result.new(status: child.wait, out: child.out, err: child.err)

  # Its rows are those of the functions and lines themselves. An explicit choice is refused.
  it "are by self where the library is older and has no call paths, and say so" do
    process = host_target("--fewer", 2)
    both("hot", process, 1).each do |told|
      expect(told.json["by"]).to eq("self"), told.err
      expect(told.json["rows"].map { |row| row["function"] }).to include("Parser#step0")
      message = /by self: the library in process #{process.pid} \(.*\) does not have the probe stack__frame/
      expect(told.err).to match(message)
      expect(told.json["warnings"]).to include(message)
    end
    both("hot", process, 1, "--by", "own").each { |told| expect(told.status.exitstatus).to eq(1), told.err }
  end

  installed = {
    "Ruby" => [["gems/shop-1.0/exe/shop.rb", <<~'RUBY'], ["gems/shop-1.0/lib/shop.rb", <<~'RUBY'],
      require File.join(__dir__, "../lib/shop")
      puts "ready"
      $stdout.flush
      Shop.new.serve
    RUBY
      class Shop
        def pay = (n = 0; n += 1 while n < 20_000)
        def serve = loop { pay }
      end
    RUBY
               "gems/shop-1.0/exe/shop.rb", "*/gems/shop-*/*", "Shop#pay"],
    "Python" => [["bin/shop.py", <<~'PYTHON'], ["lib/site-packages/shop/__init__.py", <<~'PYTHON'],
      import os, sys
      sys.path.insert(0, os.path.join(sys.argv[1], "lib/site-packages"))
      from shop import serve
      print("ready", flush=True)
      serve()
    PYTHON
      def pay():
          n = 0
          while n < 20_000: n += 1
      def serve():
          while True: pay()
    PYTHON
                 "bin/shop.py", "*/site-packages/shop/*", "pay"]
  }
  installed.each do |language, (script, library, start, glob, function)|
    it "know an application of #{language} that is installed as a package, as record does" do
      [script, library].each do |name, text|
        FileUtils.mkdir_p(File.dirname(File.join(@folder, name)))
        File.write(File.join(@folder, name), text)
      end
      process = target(File.join(@folder, start), @folder, env: {"GEM_PATH" => @folder}).ready
      both("hot", process, 2).each do |told|
        expect(told.json["own"]).to include("by" => "entry"), told.err
        expect(told.json["own"]["globs"]).to include(glob)
        expect(told.json["rows"].first).to include("function" => end_with(function), "outside" => false)
      end
      path = File.join(@folder, "shop.pb.gz")
      words = ["record", "-p", process.pid, "-d", 2, "-o", path, "--json"]
      told = (language == "Ruby" ? probescope(*words) : result(start_wheel(*words))).json
      expect(told["own"]["globs"]).to include(glob)
      expect(told["kinds"].first["rows"].first)
        .to include("function" => end_with(function), "outside" => false)
      kept = probescope("convert", path, "--json").json
      expect(kept.slice("by", "own")).to eq(told.slice("by", "own"))
    end
  end

  it "are refused with what they do not take" do
    {%w[--by what] => "--by", ["--own", "a/*", "--by", "self"] => "--own is for --by own",
     %w[--by own --by-request] => "has no rows by call path"}.each do |options, message|
      refused = probescope("hot", "-p", Process.pid, *options)
      expect(refused.status.exitstatus).to eq(2)
      expect(refused.err).to include(message)
    end
  end
end
