# frozen_string_literal: true

# Finds what ext/ruby and ext/python keep of the VM and do not declare (ext/core/table/kept.h): an
# object in a struct or in a static variable, an address in one of Ruby's. Returns complaints, one
# line each.
class KeptLint
  ON_STACK = "on the C stack, for the length of a call"
  OF_THE_VM = "memory of the VM, as this version lays it out"
  SYMBOL = "a Symbol that the library made: it is no object of the heap"
  MARKED = "of an object of the VM, which marks or counts it"
  # What may hold an object and is not declared. {file => {place or struct => reason}}
  EXCEPTIONS = {
    "python/compat.h" => { "ps_error" => ON_STACK, "struct ps_frame_object" => OF_THE_VM,
                           "struct ps_walked_frame" => OF_THE_VM },
    "python/exceptions_hooks.c" => { "struct entries" => ON_STACK, "struct raised" => ON_STACK },
    "python/exceptions_hooks.h" => { "ps_raise" => ON_STACK, "ps_frame_walk" => ON_STACK },
    "python/run_time_probes_binding.c" => { "Probe" => MARKED, "Encoded" => ON_STACK },
    "ruby/backtraces_hooks.c" => { "allocated_objects" => SYMBOL, "struct removal" => ON_STACK,
                                   "struct stack" => ON_STACK },
    "ruby/collections_hooks.c" => { "major_by" => SYMBOL, "live_slots" => SYMBOL },
    "ruby/current_stack.c" => {
      "last" => "each thread has its own; ps_known_epoch says whether the address is still the fiber's"
    },
    "ruby/doing.c" => { "struct one" => ON_STACK },
    "ruby/doing.h" => { "ps_doing" => ON_STACK },
    "ruby/exceptions_hooks.c" => { "frames" => "written and read in one call",
                                   "struct place" => "raises.recent is declared",
                                   "struct stack" => ON_STACK, "struct raise" => ON_STACK },
    "ruby/functions_hooks.c" => {
      "struct target" => "ps_known_epoch says whether `last` is current",
      "struct added" => ON_STACK
    },
    "ruby/job.c" => { "queue" => OF_THE_VM },
    "ruby/methods.c" => { "event_call" => SYMBOL, "event_return" => SYMBOL, "event_b_return" => SYMBOL,
                          "frames" => "written and read in one call",
                          "struct slice" => ON_STACK, "struct enabling" => ON_STACK },
    "ruby/methods.h" => { "ps_walk" => "PS_HELD_WALK() declares each walk" },
    "ruby/names.c" => { "expected_class" => "ps_names_init() holds it, and nothing reads it later",
                        "frames" => "flags, which only have the size of an object" },
    "ruby/probescope.c" => { "root" => "the object whose mark function is the walk" },
    "ruby/ractors.c" => { "struct event_hook" => OF_THE_VM, "struct ractor" => OF_THE_VM },
    "ruby/run_time_probes_binding.c" => { "Probe" => MARKED },
    "ruby/scripts.c" => { "struct told" => OF_THE_VM },
    "ruby/ticks.h" => { "ps_tick" => "ticks.c visits those in its ring; others are on the C stack" },
    "ruby/trace_context.c" => { "struct search" => ON_STACK }
  }.freeze

  # A variable, or a field of a struct. path: as C names it, without indexes. Fields of a struct that
  # is no variable begin with the struct's name, such as "struct method.name".
  Place = Struct.new(:path, :address)

  OBJECT = /\A(?:const )?(?:VALUE(?= )|(?:Py\w*Object|PyObject)(?= \*)|(?<address>ps_address)(?= )) /
  COMMENT = %r{/\*.*?\*/}m
  VARIABLE = /^ *static (?:__thread )?([^(){};]+)(?:;| = \{)/
  STRUCT = /^(?:typedef |static )?(?:__thread )?struct(?: (\w+))? \{\n(.*?)^\} ?([^;={]*?)(?: = [^;]*)?;/m

  # root: the folder ext.
  def initialize(root, exceptions: EXCEPTIONS)
    @exceptions = exceptions
    @texts = Dir.glob("{ruby,python}/*.{c,h}", base: root).sort.to_h do |file|
      [file, File.read(File.join(root, file)).gsub(COMMENT, "")]
    end
  end

  def size = @texts.size

  def complaints
    [*undeclared, *unused_exceptions, *written_directly, *registered]
  end

  private

  def places(file)
    text = @texts[file]
    variables = text.gsub(STRUCT, "").scan(VARIABLE).flat_map { |(line)| named(line, "") }
    fields = text.scan(STRUCT).flat_map do |struct, body, variable|
      variable = variable.split(/[\[,]/).first.to_s.strip.delete("* ")
      fields_of(body, "#{variable.empty? ? "struct #{struct}" : variable}.")
    end
    (variables + fields).select { |place| !place.address || file.start_with?("ruby/") }
  end

  # The places that one declaration declares, if it declares objects.
  def named(line, prefix)
    type = OBJECT.match(line) or return []
    names = type.post_match.split(",").grep_v(/\A *\(/)
    names.map do |name|
      Place.new(prefix + name[/\w+/], !type[:address].nil?)
    end
  end

  def fields_of(body, prefix)
    found = []
    nested = []
    body.each_line(chomp: true) do |line|
      line = line.strip
      case line
      when /\A(?:struct|union)(?: \w+)? \{\z/ then nested.push([])
      when /\A\} ?(\w*)/
        inner = Regexp.last_match(1)
        ended = nested.pop
        within = inner.empty? ? "" : "#{inner}."
        (nested.last || found).concat(ended.map { |place| Place.new(within + place.path, place.address) })
      else
        (nested.last || found).concat(named(line.delete_suffix(";"), ""))
      end
    end
    found.map { |place| Place.new(prefix + place.path, place.address) }
  end

  def declared?(file, place)
    text = @texts[file]
    return held?(text, place) || visited?(text, place) unless place.address

    parts = place.path.split(".")
    prefixes = parts.each_index.map { |i| Regexp.escape(parts[0..i].join(".")) }
    text.match?(/PS_(?:COMPARED|LASTING)\((?:#{prefixes.join("|")})\)/)
  end

  def held?(text, place) = text.match?(/PS_HELD\(#{Regexp.escape(place.path)}\)/)

  # Fields of elements: by PS_HELD_FIELD() of an array, or by the function of PS_HELD_EACH().
  def visited?(text, place)
    variable, _, field = place.path.rpartition(".")
    text.match?(/PS_HELD_FIELD\(#{Regexp.escape(variable)}, #{field}\)/) ||
      text.match?(/PS_HELD_ALL\(#{Regexp.escape(place.path)}\)/) ||
      (text.include?("PS_HELD_EACH(") && text.match?(/\bvisit\(&[^;]*(?:\.|->)#{field}(?:\[\w+\])?\)/))
  end

  def open_places
    @open_places ||= @texts.keys.flat_map do |file|
      places(file).reject { |place| declared?(file, place) }.map { |place| [file, place.path] }
    end
  end

  def excepted?(file, path)
    @exceptions.fetch(file, {}).each_key.any? { |name| path == name || path.start_with?("#{name}.") }
  end

  def undeclared
    open_places.reject { |file, path| excepted?(file, path) }
               .map { |file, path| "#{file}: #{path} is not declared (PS_HELD and others)" }
  end

  def unused_exceptions
    needed = open_places + registrations
    excepted = @exceptions.flat_map { |file, reasons| reasons.keys.map { |name| [file, name] } }
    unused = excepted.reject do |file, name|
      needed.any? { |other, path| other == file && (path == name || path.start_with?("#{name}.")) }
    end
    unused.map { |file, name| "#{file}: the exception for #{name} is not needed" }
  end

  # An assignment of Qnil is one of no object, and nothing counts references in Ruby.
  def written_directly
    @texts.flat_map do |file, text|
      written = text.scan(/PS_HELD\(([\w.]+)\)/).flatten.uniq.select do |path|
        text.match?(/^ +(?:[\w.]+ = )*#{Regexp.escape(path)} = (?!(?:[\w.]+ = )*Qnil;)/)
      end
      written.map { |path| "#{file}: #{path} is written without PS_KEEP()" }
    end
  end

  def registrations
    @texts.flat_map { |file, text| text.scan(/rb_gc_register_\w+\(&?(\w+)/).map { |(name)| [file, name] } }
  end

  def registered
    registrations.reject { |file, name| excepted?(file, name) }
                 .map { |file, name| "#{file}: #{name} is registered, not declared" }
  end
end
