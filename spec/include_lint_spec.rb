# frozen_string_literal: true

require_relative "../rakelib/include_lint"
require_relative "spec_helper"
require "tmpdir"

RSpec.describe IncludeLint do
  # Returns the complaints about a folder ext with these files. files: {path => the names it includes}
  def complaints(files, exceptions = {})
    Dir.mktmpdir do |root|
      files.each do |path, names|
        FileUtils.mkdir_p(File.dirname(File.join(root, path)))
        File.write(File.join(root, path), names.map { |name| "#include #{name}\n" }.join)
      end
      described_class.new(root, exceptions: exceptions).complaints
    end
  end

  it "accepts includes of the same folder and of lower ones, and of the system" do
    expect(complaints("core/base/clock.h" => ["<time.h>"],
                      "core/base/clock.c" => ['"base/clock.h"'],
                      "core/table/table.h" => ['"base/clock.h"'],
                      "libstapsdt/libstapsdt.h" => [],
                      "core/agent/watcher.c" => ['"table/table.h"', "<libstapsdt.h>"],
                      "ruby/hooks.c" => ["<ruby/ruby.h>", '"table/table.h"', '"names.h"'],
                      "ruby/names.h" => ["<ruby/ruby.h>"],
                      "python/hooks.c" => ["<Python.h>", '"base/clock.h"'],
                      "core/test/clock_test.c" => ['"base/clock.h"', '"agent/watcher.c"'])).to be_empty
  end

  it "finds a circle, also one that goes through a header and its source" do
    found = complaints("core/table/rows.c" => ['"table/rows.h"', '"table/names.h"'],
                       "core/table/rows.h" => [], "core/table/names.h" => ['"table/rows.h"'])
    expect(found).to eq(["core/table/names, core/table/rows: they include each other"])
  end

  it "finds an include of a higher layer, and of the other language" do
    found = complaints("core/base/clock.h" => ['"table/table.h"'], "core/table/table.h" => [],
                       "libstapsdt/provider.c" => ['"table/table.h"'],
                       "python/names.h" => [], "ruby/hooks.c" => ['"../python/names.h"'],
                       "core/agent/watcher.c" => ['"../ruby/names.h"'], "ruby/names.h" => [])
    expect(found).to contain_exactly(
      "core/base/clock.h: includes core/table/table.h, which is not in a lower layer",
      "libstapsdt/provider.c: includes core/table/table.h, which is not in a lower layer",
      "core/agent/watcher.c: includes ruby/names.h, which is not in a lower layer",
      "ruby/hooks.c: includes python/names.h, which is not in a lower layer"
    )
  end

  it "finds a header of a VM in the core" do
    found = complaints("core/usdt/info.c" => ["<ruby/ruby.h>"], "libstapsdt/provider.c" => ['"Python.h"'])
    expect(found).to contain_exactly("core/usdt/info.c: includes ruby/ruby.h of a VM",
                                     "libstapsdt/provider.c: includes Python.h of a VM")
  end

  it "finds a folder without a layer, and sources that mkmf cannot tell apart" do
    found = complaints("core/table/names.c" => [], "ruby/names.c" => [], "python/names.c" => [],
                       "core/other/clock.c" => [])
    expect(found).to contain_exactly("core/other/clock.c: its folder is in no layer of LAYERS",
                                     "core/table/names.c, ruby/names.c: have the same name")
  end

  it "knows exceptions, and finds those that nothing needs" do
    files = {"core/base/clock.h" => ['"table/table.h"'], "core/table/table.h" => []}
    known = {"core/base/clock.h" => {"core/table/table.h" => "for now"}}
    expect(complaints(files, known)).to be_empty
    expect(complaints({"core/base/clock.h" => []}, known))
      .to eq(["core/base/clock.h: the exception for core/table/table.h is not needed"])
  end
end
