# frozen_string_literal: true

require_relative "spec_helper"
require "open3"

RSpec.describe "the address of an object that may have been freed" do
  # Returns the C compiler's complaint about a function with this body.
  def complaint(includes, body, flags)
    source = "#{includes}\n#include \"base/address.h\"\nvoid f(ps_address address);\n" \
             "void f(ps_address address) { #{body} }\n"
    _, error, status = Open3.capture3(RbConfig::CONFIG["CC"], "-x", "c", "-fsyntax-only",
                                      "-I#{Support::ROOT}/ext/core", *flags, "-", stdin_data: source)
    status.success? ? nil : error
  end

  ruby = %w[rubyhdrdir rubyarchhdrdir].map { |name| "-I#{RbConfig::CONFIG[name]}" }

  it "is accepted by no function of Ruby" do
    expect(complaint("#include <ruby/ruby.h>", "(void)address.value;", ruby)).to be_nil
    ["rb_obj_class(address);", "VALUE object = address; rb_gc_mark(object);",
     "rb_funcall(address, 0, 0);"].each do |body|
      expect(complaint("#include <ruby/ruby.h>", body, ruby)).to match(/incompatible type/)
    end
  end

  it "is accepted by no function of CPython", :slow do
    headers, = Open3.capture2(Support::Python.interpreter,
                              "-c", "import sysconfig; print(sysconfig.get_path('include'), end='')")
    skip "#{headers} has no Python.h" unless File.exist?(File.join(headers, "Python.h"))
    python = ["-I#{headers}"]
    expect(complaint("#include <Python.h>", "(void)address.value;", python)).to be_nil
    ["PyObject_Repr(address);", "PyObject *object = address; (void)object;",
     "(void)Py_TYPE(address);"].each do |body|
      expect(complaint("#include <Python.h>", body, python))
        .to match(/incompatible type|invalid initializer|pointer type|aggregate/)
    end
  end
end
