# frozen_string_literal: true

require "fileutils"

# Runs RSpec in several groups in parallel. An example mostly waits for a tracer, so there are more
# groups than processors. A tracer that attaches by path reaches every process that maps the
# library's file, so each group has its own copy of the checkout.
module TestGroups
  # Files that have their own words of bin/test, or run alone.
  APART = "spec/{story,frameworks,queues}_spec.rb"
  # Files of spec/commands that are not in the groups of that folder, because they take minutes.
  LONG = "spec/commands/{tables,wheel,looking}_spec.rb"

  # {group => its files}. Each group takes less than ten minutes beside the others.
  PATTERNS = {
    "specs-ruby-a" => "spec/ruby/[a-r]*_spec.rb",
    "specs-ruby-s" => "spec/ruby/s*_spec.rb",
    "specs-ruby-t" => "spec/ruby/[t-z]*_spec.rb",
    "specs-otel" => "spec/otel/**/*_spec.rb",
    "specs-examples" => "spec/examples/**/*_spec.rb,spec/commands/{wheel,looking}_spec.rb",
    "specs-tables" => "spec/commands/tables_spec.rb",
    "specs-commands-a" => "spec/commands/[a-o]*_spec.rb",
    "specs-commands-p" => "spec/commands/[p-z]*_spec.rb",
    "specs-hostile" => "spec/{hostile,tracing}/**/*_spec.rb"
  }.freeze
  ALL = PATTERNS.to_h do |name, pattern|
    [name, ["--pattern", pattern, *(["--exclude-pattern", LONG] if name.start_with?("specs-commands"))]]
  end.merge("specs-others" => ["--exclude-pattern", [*PATTERNS.values, APART].join(",")]).freeze

  GATE = ENV.key?("PROBESCOPE_GATE")
  # Files of spec/ruby that the gate runs with one version of Ruby only: that of this system.
  ONE_VERSION = "spec/ruby/{backtraces,given_back,heap,hostile,jobs,jobs_from_threads,kept_alive,latency," \
                "names,provider,switching,unseen,waking}_spec.rb"
  PROGRAMS = Dir["spec/{notes,libstapsdt,commands/programs,otel/containers}_spec.rb"].freeze
  # Files that depend on the versions of Ruby and bpftrace. The gate leaves out those about bpftrace:
  # recorded_spec.rb has what each version of bpftrace prints for every table.
  MATRIX = PATTERNS.slice("specs-ruby-a", "specs-ruby-s", "specs-ruby-t").transform_values do |pattern|
    ["--pattern", pattern, *(["--exclude-pattern", ONE_VERSION] if GATE)]
  end.merge(
    "specs-commands" => ["spec/commands/ruby_process_spec.rb"],
    **(GATE ? {} : { "specs-tables" => ["spec/commands/tables_spec.rb"], "specs-programs" => PROGRAMS })
  ).freeze

  module_function

  # Runs the groups in parallel. Repeats failed examples when all groups are done.
  def side_by_side(run, groups)
    parts = groups.map do |name, arguments|
      lambda do
        copy_checkout("tmp/#{name}")
        run.once(name, *arguments, "--profile", "10", directory: "tmp/#{name}")
      end
    end
    run.beside(*parts)
    groups.each_key { |name| run.again(name, directory: "tmp/#{name}") }
  end

  # The copy has the compiled library and the same gems.
  def copy_checkout(copy)
    FileUtils.rm_rf(copy)
    FileUtils.mkdir_p("#{copy}/tmp")
    left_out = %w[./tmp ./vendor ./.git ./examples/*/tmp].map { |path| "--exclude=#{path}" }
    system("tar -c #{left_out.join(" ")} . | tar -x -C #{copy}", exception: true)
    FileUtils.ln_s("../../vendor", "#{copy}/vendor")
    gem = "opentelemetry-1.4"
    FileUtils.ln_s("../../#{gem}", "#{copy}/tmp/#{gem}") if File.exist?("tmp/#{gem}")
  end
end
