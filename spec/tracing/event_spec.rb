# frozen_string_literal: true

require "spec_helper"
require "fiddle"
require "open3"
require "tmpdir"
require "probescope/tracing/c_function"
require "probescope/tracing/event"
require "probescope/tracing/kernel"
require "probescope/tracing/program"
require "probescope/tracing/reader"

# What the user types for `probescope on`, and what of it comes into a bpftrace program.
RSpec.describe Probescope::Tracing::Event do
  injected = ["a; id", "a`id`", "$(id)", "a\nBEGIN { system(\"id\"); }", "a,kprobe:do_exit", "*", "a*", "a?",
              "a/b", "../x", "", " a", "a b", "a\"", "a'", "a}", "a{", "//", "/*", "a\0b", "a\e[31m", "1a",
              "-c", "a:b", "\u00e9", "a" * 256, "a\n", "\nb", "args->x", "$1", "@a", "#include"]

  it "takes no name that is more than a name" do
    injected.each do |text|
      texts = ["tracepoint:#{text}:open", "tracepoint:syscalls:#{text}", "software:#{text}",
               "software:cs:#{text}", "uprobe:libc.so.6:#{text}", "#{text}:a:b", "#{text}software:cs"]
      # A colon before the last one belongs to the file's name: a file that no process maps.
      texts.delete("uprobe:libc.so.6:#{text}") if text.include?(":")
      texts.delete("software:cs")
      texts.each do |event|
        expect { described_class.parse(event) }.to raise_error(Probescope::Tracing::Error), event.inspect
      end
      ["tracepoint:sched:sched_switch", "uprobe:libc.so.6:malloc"].each do |event|
        expect { described_class.parse(event, text) }.to raise_error(Probescope::Tracing::Error), text.inspect
      end
    end
    expect { described_class.parse("tracepoint:\xff:a") }.to raise_error(/no valid text/)
  end

  it "says no to the same names in a request" do
    good = {"kind" => "tracepoint", "category" => "sched", "name" => "sched_switch", "sum" => "prev_pid"}
    expect(described_class.valid?(good)).to be(true)
    expect(described_class.valid?(good.except("sum"))).to be(true)
    injected.each do |text|
      %w[kind category name sum].each do |field|
        expect(described_class.valid?(good.merge(field => text))).to be(false), [field, text].inspect
      end
    end
    uprobe = {"kind" => "uprobe", "file" => "libc.so.6", "symbol" => "malloc"}
    expect(described_class.valid?(uprobe)).to be(true)
    files = ["", "a/b", "a\0b", "/#{"a" * 4095}", "\xff"].map { |file| uprobe.merge("file" => file) }
    wrong = [good.except("name"), good.merge("more" => "a"), good.merge("name" => 1),
             good.merge("sum" => nil), good.merge("kind" => "kprobe"), uprobe.merge("sum" => "arg4"), *files,
             {"kind" => "software", "name" => "cpu-clock"}, [], nil, "software:cs", {}]
    expect(wrong.map { |fields| described_class.valid?(fields) }.uniq).to eq([false])
  end

  it "changes two lines of a program, and no file's name comes into it" do
    %w[on.bt on_stack.bt].each do |name|
      text = File.read(Probescope::Tracing::Program.path(name))
      known = [
        ["tracepoint:sched:sched_switch", "prev_pid", "tracepoint:sched:sched_switch", "args->prev_pid"],
        ["software:cs", nil, "software:context-switches:1", "0"],
        ["uprobe:lib \"x\"\n$(id):malloc@@GLIBC_2.2.5", "arg3",
         "uprobe:\"/run/x/uprobe\":\"malloc@@GLIBC_2.2.5\"", "arg3"]
      ]
      known.each do |event, sum, point, value|
        told = described_class.parse(event, sum).program(text, "/run/x/uprobe")
        changed = told.lines.zip(text.lines).reject { |one, other| one == other }.map(&:first)
        expect(changed).to eq(["#{point}\n", *("  $value = (int64)#{value};\n" if sum)])
      end
    end
  end

  it "checks its names once more before it writes a program" do
    event = described_class.of("kind" => "tracepoint", "category" => "a", "name" => "b\nBEGIN{}")
    expect { event.program(File.read(Probescope::Tracing::Program.path("on.bt")), nil) }
      .to raise_error(/is no name of a tracepoint/)
  end

  describe "tracepoints" do
    around { |example| Dir.mktmpdir { |folder| example.run if (@folder = folder) } }

    def kernel = Probescope::Tracing::Kernel.new([File.join(@folder, "events")])
    def event(sum = nil) = described_class.parse("tracepoint:shop:sold", sum)

    def write(format)
      FileUtils.mkdir_p(path = File.join(@folder, "events/shop/sold"))
      File.write(File.join(path, "id"), "7\n")
      File.write(File.join(path, "format"), format)
    end

    it "must be in the kernel's list, and their values be integers" do
      write(<<~FORMAT)
        name: sold
        ID: 7
        format:
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

        \tfield:u64 price;\toffset:8;\tsize:8;\tsigned:0;
        \tfield:unsigned long long cents;\toffset:8;\tsize:8;\tsigned:0;
        \tfield:const char * buyer;\toffset:16;\tsize:8;\tsigned:0;
        \tfield:char comm[16];\toffset:24;\tsize:16;\tsigned:0;
        \tfield:__data_loc char[] name;\toffset:40;\tsize:4;\tsigned:0;
        \tfield:struct item item;\toffset:48;\tsize:8;\tsigned:0;
        \tfield:enum kind kind;\toffset:56;\tsize:4;\tsigned:0;
        \tfield:u128 big;\toffset:64;\tsize:16;\tsigned:0;
      FORMAT
      event("price").exist!(kernel)
      event("cents").exist!(kernel)
      %w[buyer comm name item kind big common_type none].each do |field|
        expect { event(field).exist!(kernel) }
          .to raise_error("tracepoint:shop:sold has no integer field #{field}; it has price, cents")
      end
    end

    it "are a sentence where the kernel does not have them, or lists none" do
      write("")
      expect { described_class.parse("tracepoint:shop:lent").exist!(kernel) }
        .to raise_error("this kernel has no tracepoint shop:lent")
      # A folder of a category is no tracepoint.
      expect { described_class.parse("tracepoint:shop:enable").exist!(kernel) }
        .to raise_error("this kernel has no tracepoint shop:enable")
      FileUtils.rm_rf(File.join(@folder, "events"))
      expect do
        event.exist!(kernel)
      end.to raise_error(/this kernel lists no tracepoints \(.*events is missing\)/)
    end
  end
end

# The files are copies of a library, under names that a shell or bpftrace would interpret.
RSpec.describe Probescope::Tracing::CFunction do
  names = ["libplain.so", "lib with \"quotes\" and 'more'.so", "lib$(id);`id`.so", "lib,*?:colon.so"]
  newline = "lib\nBEGIN{}.so"

  loads = "ARGV.each { |path| Fiddle.dlopen(path) }; $stdout.sync = true; puts 'ready'; sleep"

  before(:all) do
    @folder = Dir.mktmpdir
    source = "static int same(int x) { return x + N; } int FUNCTION(int x) { return same(x); }"
    parts = [1, 2].map do |i|
      File.write(File.join(@folder, "part#{i}.c"),
                 source.sub("FUNCTION", "public#{i}").sub("N", (i * 3).to_s))
      File.join(@folder, "part#{i}.c")
    end
    out, status = Open3.capture2e("cc", "-shared", "-fPIC", "-O0", "-o", library("libplain.so"), *parts)
    raise out unless status.success?

    [*names.drop(1), newline].each { |name| FileUtils.cp(library("libplain.so"), library(name)) }
    FileUtils.mkdir(File.join(@folder, "b"))
    FileUtils.cp(library("libplain.so"), File.join(@folder, "b/libtwice.so"))
    FileUtils.cp(library("libplain.so"), library("libtwice.so"))
    mapped = [*names, newline, "libtwice.so", "b/libtwice.so"].map { |name| library(name) }
    @child = Support::Child.new(RbConfig.ruby, "-rfiddle", "-e",
                                loads,
                                *mapped)
    @child.await_line(/ready/)
  end

  after(:all) do
    @child.signal(:KILL)
    FileUtils.rm_rf(@folder)
  end

  def library(name) = File.join(@folder, name)

  # Returns the base name of the file that was found.
  def find(name, symbol = "public1", users: nil, pid: @child.pid)
    (*, path, io) = described_class.find(pid, name.b, symbol, users)
    expect(io.pread(4, 0)).to eq("\x7FELF".b)
    File.basename(path)
  ensure
    io&.close
  end

  def refusal(name, symbol = "public1", **options)
    find(name, symbol, **options)
    nil
  rescue Probescope::Tracing::Refused => e
    e.message
  end

  it "finds files by name and by path, whatever characters are in the name" do
    names.each { |name| expect([find(name), find(library(name))]).to eq([name, name]) }
    # The kernel's list of mappings writes an end of line as \012.
    expect(find(library(newline))).to eq("lib\\012BEGIN{}.so")
    expect(refusal(newline)).to include("maps no code of a file")
  end

  it "finds the file through links, and no file that the process does not map" do
    File.symlink(library("libplain.so"), link = library("link.so"))
    expect(find(link)).to eq("libplain.so")
    # The same path leads to other files meanwhile.
    ["/etc/passwd", "/dev/null", library("b"), library("part1.c"), "nowhere"].each do |other|
      File.unlink(link)
      File.symlink(other, link)
      expect(refusal(link)).to include("maps no code of a file #{link}")
    end
    File.unlink(link)
    File.mkfifo(link)
    expect(refusal(link)).to include("maps no code of a file #{link}")
    ["libnone.so", "", ".", "/", "*", "libplain.so*", "part1.c"].each do |name|
      expect(refusal(name)).to match(/maps no code of a file/), name
    end
  end

  it "asks for the path where two files have one name" do
    expect(refusal("libtwice.so")).to include("maps 2 files libtwice.so")
    expect(find(library("b/libtwice.so"))).to eq("libtwice.so")
  end

  it "finds the mapped file, also if it was replaced or deleted" do
    path = library("libplain.so")
    File.link(path, "#{path}.kept")
    File.unlink(path)
    expect([find(path), find("libplain.so")]).to eq(%w[libplain.so libplain.so])
    FileUtils.cp("/bin/true", path)
    expect([find(path), find("libplain.so")]).to eq(%w[libplain.so libplain.so])
  ensure
    File.rename("#{path}.kept", path)
  end

  it "takes only functions, of one address" do
    expect(refusal("libplain.so", "none")).to eq("libplain.so has no function none in its symbol tables")
    expect(refusal("libplain.so", "public")).to include("has no function public ")
    expect(refusal("libplain.so", "_edata")).to include("has no function _edata ")
    expect(refusal("libplain.so", "printf")).to include("has no function printf ")
    expect(refusal("libplain.so", "same")).to include("has 2 functions same, and bpftrace finds only one")
    expect(find("libc.so.6", "labs")).to eq("libc.so.6")
    expect(refusal("libc.so.6", "strlen")).to include("several versions").and include("IFUNC")
  end

  it "does not trust a file of another user, for several processes" do
    skip "needs root" unless Process.uid.zero?

    File.chown(65_534, 65_534, library("libtwice.so"))
    expect(refusal(library("libtwice.so"), users: [0])).to include("belongs to user 65534")
    expect(find(library("libtwice.so"), users: nil)).to eq("libtwice.so")
  ensure
    File.chown(0, 0, library("libtwice.so")) if Process.uid.zero?
  end

  it "is refused when the process has ended" do
    child = Support::Child.new("/bin/true")
    child.wait
    place = Probescope::Tracing::Foreign::Place.new(child.pid, "1", nil, 0)
    expect { Probescope::Tracing::Reader.ask(:function, place, "libc.so.6".b, "labs", nil) }
      .to raise_error(Probescope::Tracing::Refused, /process #{child.pid} has just ended/)
  end
end
