# frozen_string_literal: true

require "json"
require "open3"

# docs/truth.md: the worst figure of each command in each temperament, from what spec/truth/truth_spec.rb found.
module TruthPage
  RESULTS = "tmp/truth.jsonl"
  PAGE = "docs/truth.md"

  module_function

  def write(settings)
    rows = File.exist?(RESULTS) ? File.readlines(RESULTS).map { |line| JSON.parse(line) } : []
    File.write(PAGE, [head(settings), table(rows), ""].join("\n"))
    puts "#{PAGE}: #{rows.size} comparisons, #{rows.sum { |row| row["wrong"] }} figures outside"
  end

  def head(settings)
    <<~TEXT
      # What the commands report, and what is true

      Programs in `spec/truth/programs` do known work in several temperaments, count it and time it by their own clocks, and write that
      down with the time. Each command is run on them, and what it reports is held against what the program counted in the interval
      that the command states. `rake truth` runs this and writes this page.

      - A count is right when it lies between the least and the most that the program can have counted in the interval: its ends are known
        to 50 ms, and the program notes its counters after each unit of work.
      - A share is right within 5 points: of `calls` the elapsed time of a function as a part of the interval, of `hot` the self time of a
        function as a part of the CPU time.
      - OFF BY is how far the worst figure is from the nearest right one, in percent of a count and in points of a share.

      #{versions}; #{settings["TRUTH_SEEDS"]} seeds, intervals of #{settings["TRUTH_SECONDS"]} s#{samples(settings)}.
    TEXT
  end

  def samples(settings)
    settings["TRUTH_SAMPLES"] == "0" ? ", without `hot`" : ", `hot` for #{settings["TRUTH_SAMPLES"]} samples of a CPU that is always in use"
  end

  def versions
    python = Open3.capture2e(ENV.fetch("PYTHON", "python3"), "--version").first.chomp
    bpftrace = Open3.capture2e({"PATH" => "#{ENV.fetch("PATH")}:/usr/sbin"}, "bpftrace", "--version").first.chomp
    "Ruby #{RUBY_VERSION}, #{python}, #{bpftrace}, #{Time.now.utc.strftime("%Y-%m-%d")}"
  end

  def table(rows)
    lines = rows.group_by { |row| row.values_at("language", "temperament", "command") }.map do |key, same|
      worst = same.max_by { |row| [row["wrong"], row["error"]] }
      figures = same.sum { |row| row["figures"] }
      "| #{[*key, figures, same.sum { |row| row["wrong"] }, off_by(worst), worst["worst"]].join(" | ")} |"
    end
    ["| language | temperament | command | figures | outside | off by | the worst of them |", "|---|---|---|---|---|---|---|",
     *lines].join("\n")
  end

  def off_by(row) = format(row["kind"] == "percent" ? "%.1f %%" : "%.1f points", row["error"])
end
