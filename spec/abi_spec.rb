# frozen_string_literal: true

require "spec_helper"
require "fileutils"
require "json"
require "open3"
require "yaml"
require_relative "../rakelib/abi_generator"

# spec/abi/VERSION keeps the programs and the definition of probes of a released version (rake
# abi:keep). These programs must work on every later library.
kept = Dir[File.join(Support::ROOT, "spec/abi/*.*.*")]

RSpec.describe "A released version" do
  def probes(path)
    YAML.safe_load_file(path, aliases: true).fetch("probes").to_h { |one| [one["name"], one] }
  end

  def fields(probe, where) = probe.fetch(where, nil).to_a.map { |field| field.values_at("name", "type") }

  kept.each do |folder|
    it "in #{File.basename(folder)} is contained in the present probes, with fields only appended" do
      today = probes(File.join(Support::ROOT, AbiGenerator::SOURCE))
      then_ = probes("#{folder}/probescope.yml")
      expect(today.keys.first(then_.size)).to eq(then_.keys)
      then_.each do |name, probe|
        expect(fields(today[name], "args")).to eq(fields(probe, "args")), name
        expect(fields(today[name], "more").first(fields(probe, "more").size))
          .to eq(fields(probe, "more")), name
      end
    end
  end
end

# .ci/full abi: compiles a later library with one more probe, and one more field at the end of each
# other probe.
if ENV["PROBESCOPE_ABI"]
  RSpec.describe "A later library", :bpf do
    # The output of each program for spec/abi/shop.rb. all.bt prints nothing, and requests.bt has no
    # requests.
    answers = {
      "exceptions" => /^@raised\[\d+, (?:\d+, )?Refused, .*shop\.rb, 8\b.*\]: \d\d+$/,
      "raises" => /^Refused at \S*shop\.rb:8/,
      "backtraces" => /^@calls\[\d+, caller, .*shop\.rb, 9.*\]: \d+/,
      "calls" => /^@calls\[\d+, .*Shop#refuse.*\]: \d\d+$/,
      "hot" => /^@self_ns\[\d+, (?:\d+, )?Shop#compute.*\]: \d+/,
      "lines" => /^@self_ns\[\d+, .*shop\.rb.*\]: \d+/,
      "alloc" => /^@allocated\[\d+, (?:\d+, )?Item, .*shop\.rb, 11.*\]: \d\d+/,
      "gc" => /^@collections\[\d+, \w+\]: \d+/,
      "flow" => /^> .*\tShop#\w+\t/, "stat" => /^= \d+ \d+ \d+ [1-9]/, "light" => /^= \d+ \d+ \d+ 0 [1-9]/,
      "slow1ms" => /Shop#slow/, "slow10ms" => /Shop#slow/, "slow100ms" => /Shop#slow/,
      "offcpu" => /^@blocked_ns\[\d+, \d+, \d+\]: \d+/,
      "syscalls" => /^@calls\[\d+, \d+, \d+\]: \d+/,
      "gvl" => /^@wall_ns\[\d+\]: \d+/, "requests" => /^@wall_ns\[\d+\]: \d+/, "all" => /\A/,
      "on" => /^@wall_ns\[\d+\]: \d+/, "on_stack" => /^@wall_ns\[\d+\]: \d+/,
      "waits" => /^@wall_ns\[\d+\]: \d+/
    }
    later = nil

    before(:all) do
      later = "#{Support::ROOT}/tmp/abi"
      FileUtils.rm_rf(later)
      FileUtils.mkdir_p("#{later}/build")
      %w[lib ext providers].each { |name| FileUtils.cp_r("#{Support::ROOT}/#{name}", later) }
      definition = YAML.safe_load_file("#{later}/providers/probescope.yml", aliases: true)
      added = [{"name" => "later", "type" => "u64", "about" => "of a version to come"}]
      definition["probes"].each { |probe| probe["more"] &&= probe["more"] + added }
      definition["probes"] << {"name" => "later__probe", "about" => "Of a version to come.", "args" => []}
      File.write("#{later}/providers/probescope.yml", YAML.dump(JSON.parse(JSON.generate(definition))))
      FileUtils.mkdir_p(["#{later}/docs", "#{later}/python/probescope"])
      AbiGenerator.write(later)
      version = "#{later}/lib/probescope/version.rb"
      File.write(version,
                 File.read(version).sub(/"(\d+)\..*"/) { "\"#{Regexp.last_match(1).to_i + 1}.0.0\"" })
      [[RbConfig.ruby, "../ext/ruby/extconf.rb"], %w[make -j2 optflags=-O1]].each do |command|
        out, status = Open3.capture2e(*command, chdir: "#{later}/build")
        raise out unless status.success?
      end
      FileUtils.mkdir_p("#{later}/lib/probescope/#{Support::ABI_DIRECTORY}")
      FileUtils.cp("#{later}/build/probescope.so", "#{later}/lib/probescope/#{Support::ABI_DIRECTORY}")
    end

    let(:shop) do
      child = keep(Support::Child.new(RbConfig.ruby, "-r#{later}/lib/probescope/auto",
                                      "#{Support::ROOT}/spec/abi/shop.rb"))
      child.await_line(/^ready$/)
      child
    end
    let(:library) { "#{later}/lib/probescope/#{Support::ABI_DIRECTORY}/probescope.so" }

    kept.each do |folder|
      Dir["#{folder}/*.bt"].each do |path|
        name = File.basename(path, ".bt")
        it "works with #{name} of #{File.basename(folder)}" do
          wanted = File.read(path).scan(/^usdt:\$1:probescope:(\w+)/).flatten
          info = Support::Info.of(shop.pid, library)
          served = info.probes.reject { |_, probe| probe[:state].to_s == "refused" }.keys
          tracer = tracer(path, pid: shop.pid, args: name.start_with?("slow") ? ["*", "0"] : [])
          await("#{name} attached", within: 60) do
            info.probes.values_at(*(wanted & served)).all? { |probe| probe[:enabled].positive? }
          end
          before = info.header[:flushes]
          unless %w[all raises].include?(name)
            await("three flushes", within: 60) { info.header[:flushes] >= before + 3 }
          end
          tracer.await_line(/Refused/) if name == "raises"
          tracer.finish
          expect(tracer.out).to match(answers.fetch(name.delete_suffix("_by_request")))
        end
      end
    end

    it "works with the present command, whose ps shows it as newer" do
      env = {"BUNDLE_GEMFILE" => nil, "RUBYOPT" => nil}
      command = [RbConfig.ruby, "exe/probescope"]
      out, err, status = Open3.capture3(env, *command, "exceptions", "-p", shop.pid.to_s, "-d", "2", "--json",
                                        chdir: Support::ROOT)
      expect(status).to be_success, err
      expect(JSON.parse(out).fetch("rows").map { |row| row["type"] }).to include("Refused")
      out, err, = Open3.capture3(env, *command, "ps", chdir: Support::ROOT)
      expect(out).to match(/^\s*#{shop.pid} .* 1\.0\.0\b/)
      expect(err).to match(
        /process #{shop.pid} has probescope 1\.0\.0, which is newer than this command \(\d\.\d\.\d\): update/
      )
    end
  end
end
