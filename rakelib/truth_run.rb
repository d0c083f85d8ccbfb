# frozen_string_literal: true

require "fileutils"
require "json"
require "open3"
require_relative "truth_page"
require_relative "../spec/support/paths"
require_relative "../spec/truth/support/language"

# Runs spec/truth: one RSpec for each language and temperament, some in parallel. While one program
# sleeps, or its bpftrace starts on one CPU, another program can use the CPU.
class TruthRun
  # settings: {"TRUTH_SEEDS" => "10", ...}
  def initialize(settings)
    @settings = settings
    @queue = Queue.new
    programs.each { |program| @queue << program }
    @queue.close
    @failed = Queue.new
    @lock = Mutex.new
    $stdout.sync = true
  end

  # Returns the names of the failed programs.
  def run
    FileUtils.mkdir_p(File.dirname(TruthPage::RESULTS))
    all = about
    write(all, kept(all))
    Array.new(Integer(@settings["TRUTH_JOBS"])) { Thread.new { work } }.each(&:join)
    write(all, rows.each { |row| row["commit"] ||= all[:commit] })
    Array.new(@failed.size) { @failed.pop }.sort
  end

  private

  # Rows of an earlier run for programs that this run does not include; they are kept in the
  # results.
  def kept(all)
    return [] unless @settings["TRUTH_KEEP"] == "1" && File.exist?(TruthPage::RESULTS)

    earlier = JSON.parse(File.foreach(TruthPage::RESULTS).first).fetch("run")
    now = all[:programs]
    all[:programs] = earlier["programs"] | now
    rows.each { |row| row["commit"] ||= earlier["commit"] }
        .reject { |row| now.include?(row.values_at("language", "temperament")) }
  end

  def rows = File.readlines(TruthPage::RESULTS).drop(1).map { |line| JSON.parse(line) }

  def write(all, rows)
    lines = [{run: all}, *rows].map { |row| "#{JSON.generate(row)}\n" }
    File.write(TruthPage::RESULTS, lines.join)
  end

  # [[language, temperament], ...]
  def programs
    languages, only = @settings.values_at("TRUTH_LANGUAGES", "TRUTH_ONLY").map do |list|
      list == "all" ? nil : list.split(",")
    end
    wanted = Truth::LANGUAGES.select { |language| languages.nil? || languages.include?(language.name) }
    # Sorted, so that a run that ends early has some programs of each language.
    all = wanted.flat_map do |language|
      language.temperaments.keys.map { |temperament| [language.name, temperament] }
    end
    all = all.sort_by.with_index do |(_, temperament), index|
      [Truth::TEMPERAMENTS.index(temperament) || 99, index]
    end
    all = all.select { |_, temperament| only.nil? || only.include?(temperament) }
    abort "TRUTH_LANGUAGES and TRUTH_ONLY select no program" if all.empty?
    all
  end

  def about
    {date: Time.now.utc.strftime("%F"), commit: commit, seeds: @settings["TRUTH_SEEDS"],
     seconds: @settings["TRUTH_SECONDS"], programs: programs}
  end

  # Returns nil in a copy without git.
  def commit
    out, _, status = Open3.capture3("git", "describe", "--always", "--dirty", "--exclude=*")
    out.strip if status.success?
  rescue Errno::ENOENT
    nil
  end

  def work
    while (language, temperament = @queue.pop)
      name = "#{language} in #{temperament.tr("_", " ")}"
      env = @settings.merge("TRUTH_LANGUAGES" => language, "TRUTH_ONLY" => temperament)
      out, status = Open3.capture2e(env, RbConfig.ruby, "-S", "bundle", "exec", "rspec", "spec/truth",
                                    "--format", "documentation")
      @lock.synchronize { puts "== #{name}: #{status.success? ? "right" : "WRONG"}", out }
      @failed << name unless status.success?
    end
  end
end
