# frozen_string_literal: true

require "json"

# Writes docs/truth.md: the worst figure of each command in each temperament, from the results of
# spec/truth/truth_spec.rb. Each version of a language has a section.
module TruthPage
  RESULTS = "tmp/truth.jsonl"
  PAGE = "docs/truth.md"
  HEAD = <<~TEXT
    # What the commands report, and what is true

    Programs in `spec/truth/programs` do known work in several temperaments. They count the work and
    time it by their own clocks, and write the counts down with the time. Each command runs on these
    programs, and its report is compared with what the program counted in the interval that the command
    states. `rake truth` runs this and writes a section for each Ruby and Python.

    - A count is right if it lies between the least and the most that the program can have counted in
      the interval. The program notes its counters after each unit of work. The ends of the interval are
      known to 1 ms in `calls`, `exceptions`, `alloc` and `stat`, whose rows are taken at one moment
      (decision 204), and to 20 or 50 ms in other commands. The counts of all seeds are also added up:
      the sums must be right as if the ends were known to 1 ms and to 10 ms. BIAS is the distance of the
      worst count of 100 and more from the best guess, in percent.
    - A share is right within 5 points. Shares of the interval are the time in a function (`calls`,
      `latency`), the CPU time (`stat`) and the time that a thread waits (`gvl`). Shares of the CPU time
      are the self time of a function (`hot`, `lines`), its total time (`hot`) and the time of
      collections (`hot`). Samples of all seeds are added up, at least 3,000.
    - The time in a function lies between what the program's clock gives inside it and around it. The
      rest is time in hooks, and time without a CPU at the start and the end of the function.
    - OUTSIDE is the number of figures that are not right. OFF BY is the distance of the worst of them
      from the nearest right figure, in percent of a count and in points of a share.
    - From the second seed on, all commands run at once. `stat` of Ruby is compared with the VM's own
      count of objects, `gc` with its count of collections, and `gvl` with what the kernel reports about
      threads that compute.
    - `syscalls` is compared on the calls of one function: how many there are, and how many fail. So is
      `on`, on one tracepoint and the sum of its values.
    - `offcpu` is compared on functions that are off the CPU for 5 % of the interval and more: the
      elapsed time without the thread's CPU time. `waits` is compared on a function that sleeps: its
      sleeps, and their time between what was asked for and what the call took. These shares are right
      within 2 points, or 2 % where several threads make more than the interval of it. The ends of
      these intervals are known to 20 ms.
    - `hot` and `lines` are not compared on programs that are on the CPU too rarely for 3,000 samples.
      The figures of `lines` are added up by function, because no program measures single lines.

  TEXT

  module_function

  def write
    about, *rows = File.readlines(RESULTS).map { |line| JSON.parse(line) }
    about = about.fetch("run")
    # Rows without figures belong to programs against which a command cannot be compared.
    rows.select! { |row| row["figures"].positive? }
    known = File.exist?(PAGE) ? File.read(PAGE).split(/^(?=## )/).drop(1) : []
    sections = known.to_h { |section| [section[/.*/], section] }
    rows.group_by { |row| row["runtime"] }.each do |runtime, same|
      sections["## #{runtime}"] = section(runtime, same, about)
    end
    File.write(PAGE, HEAD + sections.sort.map { |_, section| section.strip }.join("\n\n") << "\n")
    puts "#{PAGE}: #{rows.size} comparisons, #{rows.sum { |row| row["wrong"] }} figures outside"
  end

  def section(runtime, rows, about)
    date, seeds, seconds = about.values_at("date", "seeds", "seconds")
    figures, wrong = %w[figures wrong].map { |name| rows.sum { |row| row[name] } }
    <<~TEXT
      ## #{runtime}

      #{date}#{commits(rows, about)}. #{seeds} seeds, intervals of #{seconds} s#{samples(rows)}.
      #{figures} figures, #{wrong} outside#{missing(rows, about)}.

      #{worst(rows)}

      #{table(rows)}
    TEXT
  end

  # ", commit 1a2b3c", with the names of the programs where there are several commits.
  def commits(rows, about)
    same = rows.group_by { |row| row["commit"] || about["commit"] }
    programs = same.transform_values { |some| some.map { |row| row["temperament"] }.uniq }
    return programs.keys.compact.map { |commit| ", commit #{commit}" }.join if programs.size < 2

    ", #{programs.map { |commit, names| "commit #{commit} (#{names.join(", ")})" }.join(", ")}"
  end

  def worst(rows)
    %w[percent points].filter_map do |kind|
      of_kind = rows.select { |one| one["kind"] == kind }
      row = of_kind.max_by { |one| [one["error"], one["bias"].to_f.abs] } || next
      what = {"percent" => "count", "points" => "share"}[kind]
      bias = " (bias #{format("%+.1f %%", row["bias"])})" if row["bias"]
      "The worst #{what}: #{off_by(row)} outside#{bias}, " \
        "#{row.values_at("temperament", "command").join(", ")}, #{row["worst"]}."
    end.join("\n")
  end

  # Names the programs that were to run, but have no results.
  def missing(rows, about)
    language = rows.first["language"]
    programs = about["programs"].select { |name, _| name == language }.map(&:last)
    gone = programs - rows.map { |row| row["temperament"] }
    gone.any? ? "; no results for #{gone.join(", ")}" : ""
  end

  def samples(rows)
    least = rows.filter_map { |row| row["samples"] }.min
    least ? ", #{least} samples at least for `hot` and `lines`" : ", without `hot` and `lines`"
  end

  HEADINGS = ["TEMPERAMENT", "COMMAND", "FIGURES", "OUTSIDE", "OFF BY", "BIAS",
              "WORST FIGURE", "REPORTED AS LOST"].freeze

  def table(rows)
    groups = rows.group_by { |row| row.values_at("temperament", "command") }
    lines = groups.sort.map { |key, same| line([*key, *cells(same)]) }
    [line(HEADINGS), "|#{"---|" * HEADINGS.size}", *lines].join("\n")
  end

  def line(cells) = "| #{cells.join(" | ")} |"

  def cells(rows)
    worst = rows.max_by { |row| [row["wrong"].zero? ? 0 : 1, row["error"]] }
    bias = rows.filter_map { |row| row["bias"] }.max_by(&:abs)
    figures, wrong = %w[figures wrong].map { |key| rows.sum { |row| row[key] } }
    [figures, wrong, off_by(worst), bias && format("%+.1f %%", bias), worst["worst"], lost(rows)]
  end

  def lost(rows)
    sums = rows.map { |row| row["lost"] || {} }.reduce({}) { |all, one| all.merge(one) { |_, a, b| a + b } }
    found = sums.select { |_, number| number.positive? }
    found.map { |what, number| "#{number} #{what.tr("_", " ")}" }.join(", ")
  end

  def off_by(row) = format(row["kind"] == "percent" ? "%.1f %%" : "%.1f points", row["error"])
end
