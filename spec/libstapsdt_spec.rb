# frozen_string_literal: true

require_relative "support/libstapsdt"
require_relative "support/own_probes"

# Programs written for libstapsdt, with this project's library and a real bpftrace.
RSpec.describe "libstapsdt.so" do
  include_context "with probes of their own"

  let(:shop_in_c) { Support::LibStapsdt.compile("spec/support/provider_target.c") }

  def child(...) = keep(Support::Child.new(...))
  def shop(*arguments) = child(shop_in_c, *arguments, env: environment, stdin: true)
  def with_library = environment.merge("LD_LIBRARY_PATH" => "#{Support::LibStapsdt::PREFIX}/lib")
  def installed?(*command) = system(*command, out: File::NULL, err: File::NULL)
  def path_of(process) = process.await_line(/^ready (\d+) (\S+)$/)[2]
  def files = Dir.children("#{directory}/probescope")

  # Returns the output of a tracer that ends by itself.
  def traced(source, pid: nil)
    tracer(source, pid: pid).tap { |one| one.wait(within: 60) }.out
  end

  it "exports libstapsdt's functions and the documented additions, and nothing else" do
    Support::LibStapsdt.build
    symbols = tool("nm", "-D", "--defined-only", "#{Support::LibStapsdt::PREFIX}/lib/libstapsdt.so.0")
    expect(symbols.lines.map { |line| line.split.last })
      .to match_array(%w[providerInit providerUseMemfd providerAddProbe providerLoad providerUnload
                         providerDestroy probeFire probeIsEnabled providerAddProbeArray probeFireArray
                         providerPath])
    expect(tool("readelf", "-d", "#{Support::LibStapsdt::PREFIX}/lib/libstapsdt.so"))
      .to include("soname: [libstapsdt.so.0]")
  end

  # Sizes, offsets and numbers of a 64-bit ABI.
  def layout(member_errno)
    <<~C
      #include <stddef.h>
      #include <libstapsdt.h>
      #ifdef __cplusplus
      #define _Static_assert static_assert
      #endif
      #define AT(type, member, place) _Static_assert(offsetof(type, member) == (place), #member)
      AT(SDTProbe_t, name, 0); AT(SDTProbe_t, argFmt, 8); AT(SDTProbe_t, _fire, 32);
      AT(SDTProbe_t, provider, 40); AT(SDTProbe_t, argCount, 48);
      AT(SDTProbeList_t, probe, 0); AT(SDTProbeList_t, next, 56);
      AT(SDTProvider_t, name, 0); AT(SDTProvider_t, probes, 8); AT(SDTProvider_t, #{member_errno}, 16);
      AT(SDTProvider_t, error, 24); AT(SDTProvider_t, _handle, 32); AT(SDTProvider_t, _filename, 40);
      AT(SDTProvider_t, _memfd, 48); AT(SDTProvider_t, _use_memfd, 52);
      _Static_assert(sizeof(SDTProvider_t) == 56 && sizeof(SDTProbe_t) == 56 && sizeof(ArgType_t) == 4 &&
                     MAX_ARGUMENTS == 6, "sizes");
      _Static_assert(noError == -1 && elfCreationError == 0 && tmpCreationError == 1 &&
                     sharedLibraryOpenError == 2, "errors");
      _Static_assert(symbolLoadingError == 3 && sharedLibraryCloseError == 4, "errors");
      _Static_assert(noarg == 0 && uint8 == 1 && int8 == -1 && uint16 == 2 && int16 == -2 && uint32 == 4 &&
                     int32 == -4, "types");
      _Static_assert(uint64 == 8 && int64 == -8 && memfd_disabled == 0 && memfd_enabled == 1, "constants");
    C
  end

  it "has the structs and constants of libstapsdt, also if errno is a macro, and in C++" do
    source = File.join(directory, "layout.c")
    File.write(source, <<~C)
      #include <errno.h>
      #{layout("lastError")}
      int main(void)
      {
          SDTProvider_t *p = providerInit("a b");
          return providerLoad(p) == -1 && p->lastError == invalidNameError && !errno ? 0 : 1;
      }
    C
    system(environment, Support::LibStapsdt.compile(source), exception: true)
    tool("c++", "-fsyntax-only", "-Wall", "-Werror", "-x", "c++", "-I#{Support::LibStapsdt::PREFIX}/include",
         source)
  end

  it "passes every kind of argument to bpftrace, which finds the probes with -p", :bpf do
    process = shop("file")
    path = path_of(process)
    expect(path).to start_with("#{directory}/probescope/shop-").and end_with(".so")
    printed = traced(<<~BT, pid: process.pid)
      usdt:*:shop:kinds {
        printf("%lu %ld %lx <%s> <%s> %d\\n", arg0, arg1, arg2, str(arg3), str(arg4), arg5);
        @kinds = 1;
      }
      usdt:*:shop:small { printf("%d %u %d %u %d %u\\n", arg0, arg1, arg2, arg3, arg4, arg5); @small = 1; }
      usdt:*:shop:Class.method-1+2 { printf("I am %d\\n", arg0); if (@kinds == 1 && @small == 1) { exit(); } }
    BT
    expect(printed).to include("18446744073709551615 -9223372036854775808 3ff8000000000000 <a string> <> 7\n")
    expect(printed).to include("-1 255 -2 65535 -3 4294967295\n", "I am #{process.pid}\n")
    await("nobody listening") do
      process.puts("enabled")
      process.await_line(/^enabled \d (\d)$/) && process.out.end_with?("enabled 0 0\n")
    end
  end

  it "passes twelve arguments, which bpftrace reads from 0.24 on", :bpf do
    if (Support::Bpf.version <=> [0, 24]).negative?
      skip "bpftrace #{Support::Bpf.version.join(".")} knows no arg6"
    end

    process = shop("file")
    path_of(process)
    arguments = (0..11).map { |i| "arg#{i}" }.join(", ")
    expect(traced("usdt:*:shop:twelve { printf(\"#{(["%d"] * 12).join(" ")}\\n\", #{arguments}); exit(); }",
                  pid: process.pid))
      .to include((100..111).to_a.join(" "))
  end

  it "fires by path in every process that defines the same provider, in later ones and in " \
     "children; a child continues after its parent", :bpf do
    first = shop("file")
    path = path_of(first)
    one = tracer("usdt:#{path}:shop:Class.method-1+2 { printf(\"from %d\\n\", arg0); }")
    one.await_line(/^from #{first.pid}$/)
    second = shop("file")
    expect(path_of(second)).to eq(path)
    one.await_line(/^from #{second.pid}$/)
    first.puts("fork")
    forked = first.await_line(/^forked (\d+)$/)[1]
    one.await_line(/^from #{forked}$/)
    [first, second].each(&:close_stdin)
    [first, second].each { |process| expect(process.wait.exitstatus).to eq(0) }
    await("no file any more") { files.empty? }
  end

  it "can be unloaded and loaded again under a tracer", :bpf do
    process = shop("file")
    path_of(process)
    source = "usdt:*:shop:Class.method-1+2 { printf(\"from %d\\n\", arg0); }"
    one = tracer(source, pid: process.pid)
    one.await_line(/^from/)
    process.puts("enabled")
    process.await_line(/^enabled 0 1$/)
    process.puts("unload")
    process.await_line(/^unloaded$/)
    expect(files).to be_empty
    expect(tool("bpftrace", "-l", "-p", process.pid.to_s, "usdt:*:shop:*")).not_to include(":shop:kinds")
    one.stop(:INT)
    process.puts("load")
    process.await_line(/^loaded$/)
    tracer(source, pid: process.pid).await_line(/^from #{process.pid}$/)
    process.close_stdin
    expect(process.wait.exitstatus).to eq(0)
  end

  it "deletes a killed process's files when the next one loads" do
    killed = shop("file", "killed")
    path_of(killed)
    killed.stop(:KILL)
    expect(files.size).to eq(1)
    path_of(shop("file", "next"))
    expect(files.grep(/^killed/)).to be_empty
  end

  it "can keep a provider in memory, where bpftrace before 0.25 finds it", :bpf do
    process = shop("memory")
    expect(path_of(process)).to eq("-")
    expect(File.read("/proc/#{process.pid}/maps")).to include("/memfd:libstapsdt:shop")
    if (Support::Bpf.version <=> [0, 25]) >= 0
      skip "bpftrace #{Support::Bpf.version.join(".")} looks at no such file"
    end

    tracer("usdt:*:shop:Class.method-1+2 { printf(\"from %d\\n\", arg0); }", pid: process.pid)
      .await_line(/^from #{process.pid}$/)
  end

  it "is recorded by perf, which raises the semaphore and reads the arguments", :bpf do
    skip "perf is not installed" unless installed?("perf", "--version")
    event = "sdt_perf#{Process.pid}:plain"
    # perf's parser rejects a name with . - or +, and then every name in the file.
    process = shop("file", "perf#{Process.pid}", "plain")
    perf = ["perf", "--buildid-dir", "#{directory}/perf"]
    tool(*perf, "buildid-cache", "--add", path_of(process))
    expect(tool(*perf, "list", "sdt")).to include(event)
    tool(*perf, "probe", event)
    data = "#{directory}/perf.data"
    record = child(*perf, "record", "--no-buffering", "-o", data, "-e", event, "-p", process.pid.to_s,
                   env: ENV.to_h)
    await_enabled(process, 1, within: 60) # tracers wait for each other in the kernel
    head = File.size(data)
    # perf writes less than this about the process before it begins to record.
    await("samples in #{data}", within: 60) { File.size(data) > head + 65_536 }
    record.stop(:INT)
    expect(tool("perf", "script", "-i", data)).to match(/#{event}: .* arg1=#{process.pid}$/)
    await_enabled(process, 0)
  ensure
    installed?(*perf, "probe", "-d", event) if perf
  end

  # bcc's BPF programs need the kernel's headers. Finding, reading and raising the probes does not.
  it "is found, read and raised by bcc" do
    python = "/usr/bin/python3"
    skip "bcc is not installed" unless installed?(python, "-c", "from bcc import USDT")
    process = shop("file")
    path_of(process)
    script = <<~PYTHON
      import sys
      from bcc import USDT
      usdt = USDT(pid=#{process.pid})
      usdt.enable_probe("Class.method-1+2", "function")
      print(*[usdt.get_probe_arg_ctype("small", i) for i in range(6)], flush=True)
      sys.stdin.readline()
    PYTHON
    bcc = child(python, "-c", script, stdin: true)
    bcc.await_line(/^int8_t uint8_t int16_t uint16_t int32_t uint32_t$/)
    await_enabled(process, 1)
    bcc.close_stdin
    await_enabled(process, 0)
  end

  def await_enabled(process, value, within: 20)
    said = process.out.size
    await("enabled #{value}", within: within) do
      process.puts("enabled")
      process.out[said..].include?("enabled 0 #{value}\n")
    end
  end

  # ctypes calls the functions without the argument types of the header.
  it "works with a wrapper that calls it without its header", :bpf do
    script = <<~PYTHON
      import ctypes, time
      lib = ctypes.CDLL("#{Support::LibStapsdt::PREFIX}/lib/libstapsdt.so")
      lib.providerInit.restype = lib.providerAddProbe.restype = ctypes.c_void_p
      lib.providerLoad.argtypes = [ctypes.c_void_p]
      lib.probeFire.argtypes = lib.probeIsEnabled.argtypes = [ctypes.c_void_p]
      provider = ctypes.c_void_p(lib.providerInit(b"wrapped"))
      probe = lib.providerAddProbe(provider, b"probe", 3, 8, -4, 8)
      assert lib.providerLoad(provider) == 0
      print("ready", flush=True)
      while not lib.probeIsEnabled(probe):
          time.sleep(0.005)
      while lib.probeIsEnabled(probe):
          lib.probeFire(probe, b"text", -5, ctypes.c_uint64(2**64 - 1))
          time.sleep(0.005)
    PYTHON
    Support::LibStapsdt.build
    process = child("python3", "-c", script, env: environment)
    process.await_line(/ready/)
    expect(traced("usdt:*:wrapped:probe { printf(\"%s %d %lx\\n\", str(arg0), arg1, arg2); exit(); }",
                  pid: process.pid))
      .to include("text -5 ffffffffffffffff")
    expect(process.wait.exitstatus).to eq(0)
  end

  # The examples in the README and the documentation of upstream, and the Python wrapper, unchanged:
  #   git clone https://github.com/linux-usdt/libstapsdt DIR/libstapsdt
  #   git clone https://github.com/linux-usdt/python-stapsdt DIR/python-stapsdt
  #   PROBESCOPE_UPSTREAM=DIR bundle exec rspec spec/libstapsdt_spec.rb
  describe "with the examples of upstream", :bpf do
    let(:upstream) do
      ENV["PROBESCOPE_UPSTREAM"] ||
        skip("PROBESCOPE_UPSTREAM leads to no checkouts of libstapsdt and python-stapsdt")
    end

    # Checks calls in a wrong order, and the fields of the structs. Where upstream crashes, this
    # library returns an error.
    it "has the same layout, and gives the same results for calls in an odd order" do
      own = Support::LibStapsdt.compile("spec/support/odd_calls.c")
      of_upstream = ["-I#{upstream}/libstapsdt/src", "#{upstream}/libstapsdt/out/libstapsdt.so.0",
                     "-Wl,-rpath,#{upstream}/libstapsdt/out"]
      tool("cc", "-w", "-o", "#{directory}/odd", "#{Support::ROOT}/spec/support/odd_calls.c", *of_upstream)
      said = [own, "#{directory}/odd"].map do |program|
        child(program, env: environment).tap { |one| expect(one.wait).to be_success }.out
      end
      expect(said.first.lines.size).to be > 10
      expect(said.first).to eq(said.last)
      File.write("#{directory}/layout.c", "#{layout("errno")}int main(void) { return 0; }")
      tool("cc", "-fsyntax-only", "#{directory}/layout.c", of_upstream.first)
    end

    it "runs its demo program" do
      process = child(Support::LibStapsdt.compile("#{upstream}/libstapsdt/example/demo.c"), "theirs", "first",
                      "second", env: environment)
      await("its file") { Dir.exist?("#{directory}/probescope") && files.any? }
      expect(traced("usdt:*:theirs:second { printf(\"%d %d\\n\", arg0, arg1); exit(); }", pid: process.pid))
        .to match(/^(\d+) -\1$/)
    end

    it "runs the program of its documentation" do
      text = File.read("#{upstream}/libstapsdt/docs/how-it-works/how-to-use.rst")
      source = File.join(directory, "documented.c")
      File.write(source, text[/^\.\. code-block:: c\n\n(.*?)\n(?=\S)/m, 1])
      process = child(Support::LibStapsdt.compile(source), env: environment)
      await("its file") { Dir.exist?("#{directory}/probescope") && files.any? }
      expect(traced("usdt:*:myLittleProvider:myLittleProbe { printf(\"<%s>\\n\", str(arg0)); exit(); }",
                    pid: process.pid))
        .to include("<#{text[/probeFire\(probe, "(.*)"\)/, 1]}>")
      expect(process.wait.exitstatus).to eq(0)
    end

    it "runs the Python wrapper with the example of its README" do
      readme = File.read("#{upstream}/python-stapsdt/README.md")
      Support::LibStapsdt.build
      process = child("python3", "-u", "-c", readme[/^```python\n(.*?)^```/m, 1],
                      chdir: "#{upstream}/python-stapsdt", env: with_library)
      process.await_line(/Firing/)
      expect(traced("usdt:*:pythonapp:firstProbe { printf(\"%s - %d\\n\", str(arg0), arg1); exit(); }",
                    pid: process.pid))
        .to include("My little probe - 42")
    end
  end
end
