# frozen_string_literal: true

require "open3"

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

  # feature: the base name of its files; nil: that of the group's feature, or the group's name and "s".
  def probe(name, feature = nil)
    unless name&.match?(/\A[a-z]+(__[a-z]+)?\z/)
      abort "#{name.inspect} is no name of a probe: lower-case letters, group__event, as thread__start"
    end
    abort "there is a probe #{name}: choose another name" if probes.any? { |one| one.name == name }
    unless feature.nil? || feature.match?(/\A[a-z]+(_[a-z]+)*\z/)
      abort "#{feature.inspect} is no name of a feature: lower-case letters and single underscores"
    end
    Probe.new(name, feature).write
  end

  def probes = AbiGenerator.new(File.read(AbiGenerator::SOURCE)).probes

  # Prints a section of CONTRIBUTING.md.
  def steps(heading)
    section = File.read("CONTRIBUTING.md")[/^## #{heading}\n(.*?)(?=^##)/m, 1]
    puts "\nThe steps of CONTRIBUTING.md, the first of which is done:\n#{section}"
  end

  # New files and changes of files. All of them are collected before any of them is written, so a
  # change that is not possible leaves the checkout as it was.
  class Changes
    def initialize
      @texts = {}
      @created = []
      @generated = []
      @refused = []
    end

    def create(path, text)
      return refuse("there is a file #{path}: choose another name, or remove it") if File.exist?(path)

      @created << path
      @texts[path] = text
    end

    # Names of files that `rake generate` is going to create.
    def generates(*paths) = @generated.concat(paths)

    def append(path, text) = @texts[path] = text_of(path) + text

    # Inserts a text in front of the only place that matches.
    def insert(path, before, text)
      found = text_of(path).scan(before).size
      return refuse(<<~REASON) unless found == 1
        #{path} matches #{before.inspect} #{found} times, and not once: the place for a text is not clear.
          The file has changed. Correct the pattern in rakelib/new.rake.
      REASON

      @texts[path] = text_of(path).sub(before) { "#{text}#{Regexp.last_match(0)}" }
    end

    def insert_line(path, before, line) = insert(path, before, "#{line}\n")

    # Inserts an #include among those of headers in the same folder, which are sorted.
    def include(path, header)
      line = %(#include "#{header}"\n)
      present = text_of(path).scan(%r{^#include "#{File.dirname(header)}/[^"]+"\n})
      return refuse("#{path} includes no header of #{File.dirname(header)}/: add #{line}") if present.empty?

      after = present.find { |one| one > line }
      @texts[path] = text_of(path).sub(after || present.last) { |one| after ? line + one : one + line }
    end

    def refuse(reason) = @refused << reason.chomp

    def write
      abort "Nothing was written:\n#{@refused.map { |reason| "- #{reason}" }.join("\n")}" if @refused.any?

      out, status = Open3.capture2e("git", "status", "--porcelain", "--", *changed)
      @dirty = status.success? ? out.lines.map { |line| line.split.last } : []
      @texts.each do |path, text|
        File.write(path, text)
        puts "#{@created.include?(path) ? "wrote" : "changed"} #{path}"
      end
    end

    # Prints how to take all of it back.
    def tell_how_to_start_again
      clean = changed - @dirty
      puts "To start again, without all that you have changed in these files since then:"
      puts "  git checkout -- #{clean.join(" ")}" if clean.any?
      @dirty.each { |path| puts "  (#{path} had other changes: remove by hand what was inserted)" }
      puts "  rm #{(@created + @generated).join(" ")}" if @created.any?
      puts "  bundle exec rake generate"
    end

    private

    def text_of(path) = @texts[path] || File.read(path)
    def changed = @texts.keys - @created
  end

  Command = Struct.new(:name, :probe, :argument) do
    def write
      changes = Changes.new
      changes.create("providers/#{name}.bt.erb", program)
      changes.create("lib/probescope/commands/#{name}.rb", gem)
      changes.create("spec/commands/#{name}_spec.rb", spec)
      changes.create("docs/how-to/#{name}.md",
                     "# #{TODO}: the question?\n\n#{TODO}: tables of both languages\n")
      changes.generates("providers/#{name}.bt", "docs/schema/#{name}.json")
      changes.insert("docs/schema/schemas.yml", /^  stat:\n/, schema)
      changes.insert_line("lib/probescope/cli.rb", /^ +"otel" => /,
                          %(      "#{name}" => "#{TODO}: the question",))
      changes.insert("python/probescope/command/reports.py", /^class Slow\(/, wheel)
      changes.insert_line("python/probescope/command/reports.py", /^ +\*\*\{f"slow/,
                          %(    "#{name}": #{constant},))
      add_to_lists(changes)
      changes.tap(&:write)
    end

    private

    def add_to_lists(changes)
      changes.insert_line("spec/commands/bad_input_spec.rb", /^ +"requests" => "request__done"/,
                          %(                  "#{name}" => "#{probe}",))
      changes.insert_line("spec/abi_spec.rb", /^ +"gvl" => /,
                          %(      "#{name}" => /^@events\\[\\d+, .*\\]: \\d+/,))
      changes.insert_line("README.md", /^\| `probescope stat /,
                          "| `probescope #{name} -p PID` | #{TODO}: the question |")
      changes.insert_line("docs/index.md", /^\| How do I trace several /,
                          "| #{TODO}: the question? | [#{name}](how-to/#{name}.md) | `#{name}` |")
      changes.insert_line("mkdocs.yml", /^ +- Trace several /,
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

  Probe = Struct.new(:name, :given) do
    def write
      known = known_feature
      changes = Changes.new
      changes.append(AbiGenerator::SOURCE, <<~YAML.gsub(/^(?=.)/, "  "))

        - name: #{name}
          about: "#{TODO}: what has happened."
          args:
            - {name: value, type: u64, about: "#{TODO}"}
      YAML
      changes.insert_line("spec/ruby/every_probe_spec.rb", /^ +stats__done: /,
                          "    #{name}: {value: 1}, # #{TODO}")
      changes.insert_line("tests/test_every_probe.py", /^ +"stats__done": /,
                          %(    "#{name}": {"value": 1},  # #{TODO}))
      add_feature(changes) unless known
      changes.write
      puts "#{known} has the feature: add PS_BIT(#{constant}) to its probes" if known
      changes
    end

    private

    def group = name[/\A[a-z]+/]
    def constant = name.upcase
    def feature = given || "#{group}s"
    def described = "ps_#{feature}_feature"
    def hooks = "ps_#{feature}_hooks"

    # The file that describes the feature, if there is one already.
    def known_feature
      Dir["ext/core/features/*.c"].sort.find do |file|
        next File.basename(file, ".c") == given && File.read(file).include?("#{described} = {") if given

        File.read(file).match?(/\.probes = PS_(BIT\()?#{group.upcase}_/)
      end
    end

    def add_feature(changes)
      check_names(changes)
      changes.create("ext/core/features/#{feature}.h", header)
      changes.create("ext/core/features/#{feature}.c", description)
      changes.include("ext/core/features/features.c", "features/#{feature}.h")
      changes.insert_line("ext/core/features/features.c", /^    NULL,/, "    &#{described},")
      places = {"ruby" => ["Ruby", %r{^/\* trace_context\.c}],
                "python" => ["Python", %r{^/\* current_stack\.c}]}
      places.each do |folder, (language, before)|
        changes.create("ext/#{folder}/#{feature}_hooks.c", hook(language))
        changes.insert("ext/#{folder}/hooks.h", before,
                       "/* #{feature}_hooks.c: #{name} */\nextern const ps_hooks #{hooks};\n\n")
      end
      changes.insert("ext/ruby/probescope.c", /&requests_hooks/, "&#{hooks}, ")
      changes.insert_line("ext/python/module.c", /^ +&requests_hooks,/, "            &#{hooks},")
    end

    # mkmf finds a source by its base name alone, and the guard of a header is made of it. So a name
    # is there once in all of ext, and so are the names that C sees.
    def check_names(changes)
      files = Dir["ext/**/*.{c,h}"].grep_v(%r{\Aext/core/test/})
      taken = files.select { |file| [feature, "#{feature}_hooks"].include?(File.basename(file, ".*")) }
      files.each do |file|
        found = File.read(file)[/\b(?:#{described}|#{hooks}|PS_#{feature.upcase}_H)\b/]
        taken << "#{found} in #{file}" if found && !taken.include?(file)
      end
      return if taken.empty?

      changes.refuse(<<~REASON)
        the name "#{feature}" of the feature is taken: #{taken.join(", ")}.
          Choose another name, which its files, functions and tables then have:
          bundle exec rake 'new:probe[#{name},#{name.squeeze("_")}]'
      REASON
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
         * #{TODO}: how #{language} reports it.
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

        static bool hook(ps_probe_set wanted)
        {
            bool wants = (wanted & #{described}.probes) != 0;
            if (wants == on) return true;
            /*
             * #{TODO}: puts the hook in or takes it out. If that can take longer than 2 ms, do a slice of
             * it and return false, with `on` as it is: the core calls again.
             */
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
    changes = New.command(given[:name], given[:probe])
    Rake::Task["generate"].execute
    New.steps("Add a command")
  ensure
    changes&.tell_how_to_start_again
  end

  desc "Write what a new probe begins with, in both languages: 'new:probe[thread__start]'; " \
       "'new:probe[method__redefined,redefinitions]' names its files"
  task :probe, %i[name feature] do |_, given|
    changes = New.probe(given[:name], given[:feature])
    Rake::Task["generate"].execute
    New.steps("Add a probe")
  ensure
    changes&.tell_how_to_start_again
  end
end
