# frozen_string_literal: true

require "fileutils"

# Runs RSpec in several groups in parallel. An example mostly waits for a tracer, so there are more
# groups than processors. A tracer that attaches by path reaches every process that maps the
# library's file, so each group has its own copy of the checkout.
module TestGroups
  RUBY = "spec/ruby/**/*_spec.rb"
  EXAMPLES = "spec/{otel,examples}/**/*_spec.rb"
  COMMANDS = "spec/commands/**/*_spec.rb"
  TABLES = "spec/commands/{tables,wheel,looking}_spec.rb"
  # Files that have their own words of bin/test, or run alone.
  OTHERS = "spec/{story,frameworks,queues}_spec.rb"

  ALL = {
    "specs-ruby" => ["--pattern", RUBY],
    "specs-examples" => ["--pattern", EXAMPLES],
    "specs-tables" => ["--pattern", TABLES],
    "specs-commands" => ["--pattern", COMMANDS, "--exclude-pattern", TABLES],
    "specs-others" => ["--exclude-pattern", [RUBY, EXAMPLES, COMMANDS, OTHERS].join(",")]
  }.freeze

  # Files that depend on the versions of Ruby and bpftrace. The gate leaves out the ones of tables:
  # recorded_spec.rb has what each version of bpftrace prints for every table.
  MATRIX = {
    "specs-ruby-a" => ["--pattern", "spec/ruby/[a-n]*_spec.rb"],
    "specs-ruby-o" => ["--pattern", "spec/ruby/[o-z]*_spec.rb"],
    "specs-tables" => ["spec/commands/tables_spec.rb"],
    "specs-commands" => Dir["spec/{notes,libstapsdt}_spec.rb",
                            "spec/commands/{programs,ruby_process}_spec.rb",
                            "spec/otel/containers_spec.rb"]
  }.except(*("specs-tables" if ENV["PROBESCOPE_GATE"])).freeze

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
