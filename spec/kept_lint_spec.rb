# frozen_string_literal: true

require_relative "../rakelib/kept_lint"
require_relative "spec_helper"
require "tmpdir"

RSpec.describe KeptLint do
  # Returns the complaints about a folder ext with these files. files: {path => text}
  def complaints(files, exceptions = {})
    Dir.mktmpdir do |root|
      files.each do |path, text|
        FileUtils.mkdir_p(File.dirname(File.join(root, path)))
        File.write(File.join(root, path), text)
      end
      described_class.new(root, exceptions: exceptions).complaints
    end
  end

  it "accepts objects that are declared, in every way, and what holds none" do
    expect(complaints("ruby/hooks.c" => <<~C, "python/hooks.c" => <<~PYTHON)).to be_empty
      static struct {
          bool on;
          VALUE hook, names[4];
          struct {
              uint32_t depth;
              VALUE object;
          } recent[8];
          ps_address seen; /* VALUE not_a_field; */
          VALUE (*work)(VALUE);
      } raises = {.hook = Qnil};
      static VALUE module = Qnil;
      static VALUE find(VALUE name);
      struct method {
          struct method *next;
          VALUE name;
      };
      static void each(void (*visit)(void *place))
      {
          for (struct method *method = methods; method; method = method->next) visit(&method->name);
      }
      PS_KEPT(PS_HELD(raises.hook), PS_HELD_ALL(raises.names), PS_HELD_FIELD(raises.recent, object),
              PS_COMPARED(raises.seen), PS_HELD(module), PS_HELD_EACH(each))
      static void begin(void)
      {
          PS_KEEP(raises.hook, new_hook());
          raises.hook = module = Qnil;
          if (raises.hook == Qnil) return;
      }
    C
      static PyObject *find(PyObject *name);
      static struct {
          PyThreadState *thread;
          ps_address frame;
          PyCodeObject *code, *other;
      } traced;
      PS_KEPT(PS_HELD(traced.code), PS_HELD(traced.other))
    PYTHON
  end

  it "finds an object in a static variable, in a struct and in a function, that nobody declares" do
    found = complaints("ruby/hooks.c" => <<~C, "python/hooks.c" => <<~PYTHON)
      static struct {
          VALUE hook;
          struct {
              VALUE object;
          } recent[8];
      } raises;
      static VALUE module = Qnil, name;
      struct method {
          VALUE name;
      };
      static void begin(void)
      {
          static VALUE frames[4];
      }
    C
      typedef struct {
          const PyObject *object;
          PyCodeObject *code;
      } Kept;
      static __thread PyObject *last;
    PYTHON
    names = %w[raises.hook raises.recent.object module name frames] + ["struct method.name"]
    places = names.map { |name| "ruby/hooks.c: #{name}" } +
             %w[Kept.object Kept.code last].map { |name| "python/hooks.c: #{name}" }
    expect(found).to match_array(places.map { |place| "#{place} is not declared (PS_HELD and others)" })
  end

  it "finds an address in a struct of Ruby's that is neither emptied nor said to last" do
    text = "static struct running {\n    ps_address thread;\n} running[4];\n"
    expect(complaints("ruby/stack.c" => text, "python/stack.c" => text))
      .to eq(["ruby/stack.c: running.thread is not declared (PS_HELD and others)"])
    expect(complaints("ruby/stack.c" => "#{text}PS_KEPT(PS_LASTING(running))\n")).to be_empty
  end

  it "finds objects that are stored directly, and registered ones" do
    expect(complaints("ruby/hooks.c" => <<~C)).to contain_exactly(
      static VALUE hook, module;
      PS_KEPT(PS_HELD(hook), PS_HELD(module))
      static void begin(void)
      {
          hook = new_hook();
          rb_gc_register_address(&module);
      }
    C
      "ruby/hooks.c: hook is written without PS_KEEP()", "ruby/hooks.c: module is registered, not declared"
    )
  end

  it "knows exceptions, of a place or a whole struct, and finds those that nothing needs" do
    files = { "ruby/hooks.c" => "static VALUE name;\nstruct search {\n    VALUE key, value;\n};\n" }
    known = { "ruby/hooks.c" => { "name" => "a Symbol", "struct search" => "on the stack" } }
    expect(complaints(files, known)).to be_empty
    expect(complaints({ "ruby/hooks.c" => "" }, known))
      .to eq(["ruby/hooks.c: the exception for name is not needed",
              "ruby/hooks.c: the exception for struct search is not needed"])
  end
end
