# frozen_string_literal: true

require_relative "abi_generator"

# Writes what a new command or probe begins with, and prints the steps of CONTRIBUTING.md that
# remain. What is to be filled in has a TODO.
module New
  TODO = "TODO"

  module_function

  # The command counts the events of the probe by its first argument.
  def command(name, probe)
    abort "#{name.inspect} is no name of a command: lower-case letters" unless name&.match?(/\A[a-z]+\z/)
    abort "there is a command #{name}" if File.exist?("lib/probescope/commands/#{name}.rb")
    known = probes.select { |one| one.args.any? }
    found = known.find { |one| one.name == probe }
    found || abort("new:command[#{name},PROBE]: PROBE is one of #{known.map(&:name).join(", ")}")
    Command.new(name, probe, found.args.first).write
  end

  def probe(name)
    abort "#{name.inspect} is no name of a probe: group__event" unless name&.match?(/\A[a-z]+(__[a-z]+)?\z/)
    abort "there is a probe #{name}" if probes.any? { |one| one.name == name }
    Probe.new(name).write
  end

  def probes = AbiGenerator.new(File.read(AbiGenerator::SOURCE)).probes

  def create(path, text)
    abort "there is a file #{path}" if File.exist?(path)
    File.write(path, text)
    puts "wrote #{path}"
  end

  # Inserts a text in front of the only place that matches.
  def insert(path, before, text)
    whole = File.read(path)
    found = whole.scan(before).size
    abort "#{path}: #{before.inspect} is there #{found} times, and not once" unless found == 1

    File.write(path, whole.sub(before) { "#{text}#{Regexp.last_match(0)}" })
    puts "changed #{path}"
  end

  def insert_line(path, before, line) = insert(path, before, "#{line}\n")

  # Prints a section of CONTRIBUTING.md.
  def steps(heading)
    section = File.read("CONTRIBUTING.md")[/^## #{heading}\n(.*?)(?=^##)/m, 1]
    puts "\nThe steps of CONTRIBUTING.md, the first of which is done:\n#{section}"
  end

  Command = Struct.new(:name, :probe, :argument) do
    def write
      New.create("providers/#{name}.bt.erb", program)
      New.create("lib/probescope/commands/#{name}.rb", gem)
      New.create("spec/commands/#{name}_spec.rb", spec)
      New.create("docs/how-to/#{name}.md", "# #{TODO}: the question?\n\n#{TODO}: tables of both languages\n")
      New.insert("docs/schema/schemas.yml", /^  stat:\n/, schema)
      New.insert_line("lib/probescope/cli.rb", /^ +"otel" => /,
                      %(      "#{name}" => "#{TODO}: the question",))
      New.insert("python/probescope/command/reports.py", /^class Slow\(/, wheel)
      New.insert_line("python/probescope/command/reports.py", /^ +\*\*\{f"slow/,
                      %(    "#{name}": #{constant},))
      lists
    end

    private

    def lists
      New.insert_line("spec/commands/bad_input_spec.rb", /^ +"requests" => "request__done"/,
                      %(                  "#{name}" => "#{probe}",))
      New.insert_line("spec/abi_spec.rb", /^ +"gvl" => /,
                      %(      "#{name}" => /^@events\\[\\d+, .*\\]: \\d+/,))
      New.insert_line("README.md", /^\| `probescope stat /,
                      "| `probescope #{name} -p PID` | #{TODO}: the question |")
      New.insert_line("docs/index.md", /^\| How do I trace several /,
                      "| #{TODO}: the question? | [#{name}](how-to/#{name}.md) | `#{name}` |")
      New.insert_line("mkdocs.yml", /^ +- Trace several /,
                      %(      - #{TODO} the question?: "docs/how-to/#{name}.md"))
    end

    def constant = name.capitalize
    def key = argument.name
    def string? = argument.type == "string"
    def field = string? ? "str(args.#{key}, 64)" : "args.#{key}"

    def program
      <<~BPFTRACE
        #!/usr/bin/env bpftrace
        /*
         * #{TODO}: the question?
         *
         *   #{"sudo bpftrace -p PID #{name}.bt".ljust(36)}  until Ctrl-C
         *   #{"probescope #{name} -p PID".ljust(36)}  the same program, as a table
         *
         * Prints, among other rows:
         *
         *   #{TODO}
         */

        <%= part "interval" -%>

        usdt:$1:probescope:#{probe}
        /@on[pid]/
        {
          $#{key} = #{field};
          @events[pid, $#{key}] += 1;
        <%= part "map_full", of: "@events[pid, $#{key}]" -%>

        <%= part "row", key: "pid, $#{key}", names: "$#{key}, pid" -%>
        }

        <%= part "end", print: %w[events], clear: %w[row] -%>
      BPFTRACE
    end

    def schema
      <<~YAML.gsub(/^/, "  ")
        #{name}:
          kind: table
          about: "#{TODO}: what a row is."
          table:
            nothing: "#{TODO}: nothing happened"
            columns:
              SHARE: [share, count_share]
              COUNT: [count, count]
              #{key.upcase.tr("_", " ")}: [#{string? ? "text" : "number"}, #{key}]
          row:
            parts: [pid]
            #{key}: [#{string? ? "string?" : "integer"}, "#{argument.about}"]
            count: [count?, "#{TODO}: what happened"]
            count_share: [share?, "of all of them"]
      YAML
    end

    def gem
      <<~RUBY
        # frozen_string_literal: true

        require_relative "table"

        module Probescope
          module Commands
            # #{TODO}: what its rows are.
            class #{constant} < Table
              PROGRAM = "#{name}.bt"
              USAGE = "#{name} -p PID [options]"
              ABOUT = <<~TEXT
                #{TODO}: the question? Sorted by COUNT.

                  SHARE  of all of them
              TEXT
              EXAMPLES = <<~TEXT
                #{"probescope #{name} -p 4711".ljust(36)}  for 10 seconds
                probescope #{name} -p 4711 --json | jq '.rows[] | {#{key}, count}'
              TEXT
              MIN = "all of them"

              class Report < Tracing::Report
                def rows
                  found = result.rows.map do |row|
                    {#{key}: #{string? ? "known(row.names.first)" : "row.names.first"}, count: row.number("events")}
                  end
                  all = sum(found, :count)
                  sorted(found, :count).map { |row| row.merge(count_share: ratio(row[:count], all)) }
                end

                def share(row) = row[:count_share]
              end
            end
          end
        end
      RUBY
    end

    def wheel
      <<~PYTHON
        class #{constant}(Report):
            SHARE = "count_share"

            def rows(self) -> List[Row]:
                found = [self._row(row) for row in self.result.rows()]
                every = total(found, "count")
                return [{**row, "count_share": ratio(row["count"], every)} for row in ordered(found, "count")]

            def _row(self, row: Kept) -> Row:
                name = #{string? ? "known(row.names[0])" : "row.names[0]"}
                return {"#{key}": name, "count": row.number("events")}


      PYTHON
    end

    def spec
      <<~RUBY
        # frozen_string_literal: true

        require "spec_helper"

        # #{TODO}: :bpf, and programs that count what they do, as in lines_gc_gvl_spec.rb and
        # python_process_spec.rb.
        RSpec.describe "#{name}" do
          it("says what a Ruby process did") { raise "#{TODO}" }
          it("says what a Python process did", :python) { raise "#{TODO}" }
        end
      RUBY
    end
  end

  Probe = Struct.new(:name) do
    def write
      File.write(AbiGenerator::SOURCE, <<~YAML.gsub(/^(?=.)/, "  "), mode: "a")

        - name: #{name}
          about: "#{TODO}: what has happened."
          args:
            - {name: value, type: u64, about: "#{TODO}"}
      YAML
      puts "changed #{AbiGenerator::SOURCE}"
      New.insert_line("spec/ruby/every_probe_spec.rb", /^ +stats__done: /,
                      "    #{name}: {value: 1}, # #{TODO}")
      New.insert_line("tests/test_every_probe.py", /^ +"stats__done": /,
                      %(    "#{name}": {"value": 1},  # #{TODO}))
      known = Dir["ext/core/features/*.c"].sort.find do |file|
        File.read(file).match?(/\.probes = .*PS_(BIT\()?#{group.upcase}_/)
      end
      known ? puts("#{known} has the feature: add PS_BIT(#{constant}) to its probes") : serve
    end

    private

    def group = name[/\A[a-z]+/]
    def constant = name.upcase
    def feature = "#{group}s"
    def described = "ps_#{feature}_feature"
    def hooks = "ps_#{feature}_hooks"

    def serve
      New.create("ext/core/features/#{feature}.h", header)
      New.create("ext/core/features/#{feature}.c", description)
      New.insert_line("ext/core/features/features.c", %r{^#include "features/backtraces.h"},
                      %(#include "features/#{feature}.h"))
      New.insert("ext/core/features/features.c", /^    NULL,/, "    &#{described},\n")
      places = {"ruby" => ["Ruby", "probescope.c", %r{^/\* trace_context\.c}],
                "python" => ["Python", "module.c", %r{^/\* current_stack\.c}]}
      places.each do |folder, (language, vm, before)|
        New.create("ext/#{folder}/#{group}_hooks.c", hook(language))
        New.insert("ext/#{folder}/hooks.h", before,
                   "/* #{group}_hooks.c: #{name} */\nextern const ps_hooks #{hooks};\n\n")
        New.insert("ext/#{folder}/#{vm}", /&requests_hooks/, "&#{hooks}, ")
      end
    end

    def header
      <<~C
        /* #{TODO}: #{name}, which the hooks of the VM fire. */
        #ifndef PS_#{feature.upcase}_H
        #define PS_#{feature.upcase}_H

        #include "table/feature.h"

        extern const ps_feature #{described};

        #endif
      C
    end

    def description
      <<~C
        #include "features/#{feature}.h"

        #include "usdt/looking.h"

        const ps_feature #{described} = {
            .probes = PS_BIT(#{constant}),
            .kinds = 0, /* #{TODO}: 1u << its kind in looking.h */
        };
      C
    end

    def hook(language)
      <<~C
        /*
         * #{TODO}: how #{language} tells of it.
         */
        #include "hooks.h"

        #include "features/#{feature}.h"
        #include "usdt/looking.h"
        #include "usdt/probe.h"

        static bool on;

        /*
         * #{TODO}: the hook, and who calls it, on which thread, with which lock. Between ps_look_begin()
         * and ps_look_end() it does
         *
         *     if (PS_ENABLED(#{constant})) ps_fire_#{name}(value);
         */

        static bool hook(uint32_t wanted)
        {
            bool wants = (wanted & #{described}.probes) != 0;
            if (wants == on) return true;
            /* #{TODO}: puts the hook in or takes it out. */
            on = wants;
            return true;
        }

        const ps_hooks #{hooks} = {.feature = &#{described}, .hook = hook};
      C
    end
  end
end

namespace :new do
  desc "Write what a new command begins with: 'new:command[gcs,gc__done]' counts the events of that probe"
  task :command, %i[name probe] do |_, given|
    New.command(given[:name], given[:probe])
    Rake::Task["generate"].execute
    New.steps("Add a command")
  end

  desc "Write what a new probe begins with, in both languages: 'new:probe[thread__start]'"
  task :probe, %i[name] do |_, given|
    New.probe(given[:name])
    Rake::Task["generate"].execute
    New.steps("Add a probe")
  end
end
