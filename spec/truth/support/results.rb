# frozen_string_literal: true

module Truth
  # The probe that each command needs.
  PROBES = {"calls" => "function__stats", "exceptions" => "exception__stats", "alloc" => "object__stats",
            "backtraces" => "backtrace__done", "slow" => "function__slow10ms", "hot" => "sample__stats",
            "lines" => "sample", "requests" => "request__done", "gc" => "gc__done",
            "stat" => "function__stats", "latency" => "function__stats", "flow" => "function__entry",
            "gvl" => "gvl__wait", "syscalls" => "function__here", "offcpu" => "function__here",
            "waits" => "function__here", "on" => "function__here"}.freeze
  # For CPython the kernel reports waits for the GIL.
  PROBES_OF_PYTHON = {**PROBES, "gvl" => "function__here"}.freeze

  # The figures and the losses that one command reported for one program in this many seconds. seed:
  # nil for all seeds together.
  Finding = Struct.new(:language, :temperament, :command, :seed, :seconds, :figures, :lost, :samples,
                       keyword_init: true) do
    def wrong = figures.reject(&:right?)
    def name = "#{language}, #{temperament}, #{command}"
  end

  # Adds up the counts of several seeds like those of one run. On average the uncertainty at the
  # interval's ends is smaller than in one seed.
  module Counts
    module_function

    # Returns nil if there is nothing to add up.
    def together(findings)
      counts = findings.flat_map(&:figures).select(&:near).group_by(&:what).values
      return if findings.size < 2 || counts.empty?

      figures = counts.map do |same|
        near = same.sum { |one| one.near.begin }..same.sum { |one| one.near.end }
        Figure.new(what: "#{same.first.what}, all seeds", said: same.sum { |one| one.said || 0 },
                   truth: same.sum(&:truth), within: near)
      end
      findings.first.dup.tap do |one|
        one.seed, one.seconds, one.figures, one.lost = nil, findings.sum(&:seconds), figures, nil
      end
    end
  end

  # Adds up the shares of several seeds like those of one run, because each seed has too few
  # samples.
  module Samples
    module_function

    # Returns the samples of the command with the fewest.
    def least(findings, commands)
      commands.map { |command| findings.select { |one| one.command == command }.sum(&:samples) }.min
    end

    def together(findings)
      total = findings.sum(&:samples)
      figures = findings.first.figures.map do |first|
        said, truth = %i[said truth].map do |key|
          sum = findings.sum do |one|
            one.figures.find { |figure| figure.what == first.what }[key] * one.samples
          end
          sum / total
        end
        Figure.share(first.what, said, truth)
      end
      lost = findings.filter_map(&:lost).reduce { |all, one| all.merge(one) { |_, a, b| a + b } }
      seconds = findings.sum(&:seconds)
      findings.first.dup.tap do |one|
        one.seed, one.seconds, one.figures, one.lost, one.samples = nil, seconds, figures, lost, total
      end
    end
  end

  # Keeps the findings for `rake truth`.
  module Results
    PATH = File.join(Support::ROOT, "tmp/truth.jsonl")

    module_function

    # "Ruby 3.3.8 with YJIT, bpftrace 0.23.2"
    def runtime(language)
      version = language == "Python" ? Support::Python.full_version : RUBY_VERSION
      bpftrace = Open3.capture2e("bpftrace", "--version").first[/\d+\.[\d.]+/]
      "#{language.sub(/\A\w+/) { |name| "#{name} #{version}" }}, bpftrace #{bpftrace}"
    end

    def add(finding)
      FileUtils.mkdir_p(File.dirname(PATH))
      worst = finding.figures.max_by { |figure| [figure.right? ? 0 : 1, figure.error] }
      biased = finding.figures.filter_map(&:bias).max_by(&:abs)
      row = {runtime: runtime(finding.language), **finding.to_h.except(:figures),
             figures: finding.figures.size, wrong: finding.wrong.size,
             worst: worst&.to_s, error: worst&.error&.round(2), kind: worst&.share ? "points" : "percent",
             bias: biased&.round(2), samples: finding.samples&.round}
      File.open(PATH, "a") { |file| file.puts(JSON.generate(row)) }
    end
  end
end
