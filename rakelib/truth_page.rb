# frozen_string_literal: true

require "json"
require "open3"

# docs/truth.md: the worst figure of each command in each temperament, from what spec/truth/truth_spec.rb found. One section for each set
# of versions.
module TruthPage
  RESULTS = "tmp/truth.jsonl"
  PAGE = "docs/truth.md"
  HEAD = <<~TEXT
    # What the commands report, and what is true

    Programs in `spec/truth/programs` do known work in several temperaments, count it and time it by their own clocks, and write that
    down with the time. Each command is run on them, and what it reports is held against what the program counted in the interval
    that the command states. `rake truth` runs this and writes the section of its versions.

    - A count is right when it lies between the least and the most that the program can have counted in the interval: its ends are known
      to 50 ms, and the program notes its counters after each unit of work. BIAS is how far the worst count of 100 and more is from the
      best guess, in percent.
    - A share is right within 5 points: of `calls` and `latency` the time in a function, and of `stat` the CPU time, as a part of the interval;
      of `hot` and `lines` the self time of a function as a part of the CPU time. Samples of all seeds are added up.
    - OUTSIDE counts the figures that are not right, and OFF BY is how far the worst one is from the nearest right one, in percent of a count
      and in points of a share.
    - With the second seed and later ones all commands run at once. `stat` of Ruby is held against the VM's own count of objects, and
      `gc` against its count of collections.
    - `gvl` is not here: no program knows how long its threads waited for the VM lock. `hot` and `lines` are not held to programs that are on
      the CPU too rarely for 3,000 samples.
    - What is known to be outside stands in `spec/truth/known.json` with the reason, and below the table. All else fails when it is outside.

  TEXT

  module_function

  def write(settings)
    rows = File.exist?(RESULTS) ? File.readlines(RESULTS).map { |line| JSON.parse(line) } : []
    title = "## #{versions}"
    others = File.exist?(PAGE) ? File.read(PAGE).split(/^(?=## )/).drop(1).reject { |section| section.start_with?("#{title}\n") } : []
    File.write(PAGE, HEAD + [*others, section(title, rows, settings)].sort.map(&:strip).join("\n\n") << "\n")
    puts "#{PAGE}: #{rows.size} comparisons, #{rows.sum { |row| row["wrong"] }} figures outside"
    inside = rows.select { |row| row["known"] && row["wrong"].zero? }
    names = inside.map { |row| row.values_at("language", "temperament", "command").join(", ") }.uniq
    puts "inside, though spec/truth/known.json lists them: #{names.join("; ")}" if names.any?
  end

  def section(title, rows, settings)
    commit = Open3.capture2("git", "describe", "--always", "--dirty", "--exclude=*").first.strip
    <<~TEXT
      #{title}

      #{Time.now.utc.strftime("%Y-%m-%d")}, commit #{commit}, load average #{File.read("/proc/loadavg").split[2]}. #{settings["TRUTH_SEEDS"]} seeds, intervals of
      #{settings["TRUTH_SECONDS"]} s#{samples(rows)}.

      #{table(rows)}
      #{known(rows)}
    TEXT
  end

  def samples(rows)
    least = rows.filter_map { |row| row["samples"] }.min
    least ? ", #{least} samples at least for `hot` and `lines`" : ", without `hot` and `lines`"
  end

  def versions
    python = Open3.capture2e(ENV.fetch("PYTHON", "python3"), "--version").first.chomp
    bpftrace = Open3.capture2e({"PATH" => "#{ENV.fetch("PATH")}:/usr/sbin"}, "bpftrace", "--version").first.chomp
    "Ruby #{RUBY_VERSION}, #{python}, #{bpftrace}"
  end

  HEADINGS = ["LANGUAGE", "TEMPERAMENT", "COMMAND", "FIGURES", "OUTSIDE", "OFF BY", "BIAS", "THE WORST OF THEM", "LOST, AS SAID"].freeze

  def table(rows)
    lines = rows.group_by { |row| row.values_at("language", "temperament", "command") }.map { |key, same| line([*key, *cells(same)]) }
    [line(HEADINGS), "|#{"---|" * HEADINGS.size}", *lines].join("\n")
  end

  def line(cells) = "| #{cells.join(" | ")} |"

  def cells(rows)
    worst = rows.max_by { |row| [row["wrong"].zero? ? 0 : 1, row["error"]] }
    bias = rows.filter_map { |row| row["bias"] }.max_by(&:abs)
    [rows.sum { |row| row["figures"] }, rows.sum do |row|
      row["wrong"]
    end, off_by(worst), bias && format("%+.1f %%", bias), worst["worst"], lost(rows)]
  end

  def lost(rows)
    sums = rows.map { |row| row["lost"] || {} }.reduce({}) { |all, one| all.merge(one) { |_, a, b| a + b } }
    sums.select { |_, number| number.positive? }.map { |what, number| "#{number} #{what.tr("_", " ")}" }.join(", ")
  end

  def known(rows)
    listed = rows.select { |row| row["known"] }.uniq { |row| row.values_at("language", "temperament", "command") }
    return "" if listed.empty?

    found = listed.map do |row|
      name = row.values_at("language", "temperament", "command").join(", ")
      "- #{name}#{" (inside this time)" if row["wrong"].zero?}: #{row["known"]}"
    end
    "\nKnown to be outside:\n#{found.join("\n")}\n"
  end

  def off_by(row) = format(row["kind"] == "percent" ? "%.1f %%" : "%.1f points", row["error"])
end
