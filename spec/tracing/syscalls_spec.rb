# frozen_string_literal: true

require "spec_helper"
require "open3"
require "tmpdir"
require "probescope/commands/syscalls"
require "probescope/tracing/kernel"
require "probescope/tracing/program"
require "probescope/tracing/result"
require_relative "../../rakelib/syscalls_generator"

RSpec.describe "providers/syscalls.yml" do
  generator = SyscallsGenerator.new(File.read(File.join(Support::ROOT, SyscallsGenerator::SOURCE)))

  # {name => number} of the macros with this prefix in a header.
  def macros(prefix, *options)
    text, status = Open3.capture2e("cc", "-E", "-dM", "-x", "c", *options, File::NULL)
    raise text unless status.success?

    found = text.scan(/^#define (#{prefix}\w+)\s+(\w+)/).to_h
    named = found.transform_values do |value|
      value = found[value] while found.key?(value)
      Integer(value, exception: false)
    end
    named.compact.transform_keys { |name| name.delete_prefix("__NR_") }
  end

  headers = {
    RbConfig::CONFIG["host_cpu"] => %w[-include asm/unistd.h],
    # Debian's linux-libc-dev-arm64-cross
    "aarch64" => %w[-nostdinc -U__x86_64__ -D__aarch64__ -I/usr/aarch64-linux-gnu/include
                    -include asm/unistd.h]
  }
  headers.delete("aarch64") unless File.directory?("/usr/aarch64-linux-gnu/include/asm")

  headers.each do |machine, options|
    it "has the numbers of the kernel's headers for #{machine}" do
      wanted = macros("__NR_", *options).except("arch_specific_syscall", "syscalls")
      has = generator.calls.to_h { |call| [call.name, call.numbers[machine]] }
      expect(wanted.size).to be > 250
      expect(wanted.reject { |name, number| has[name] == number }).to eq({})
    end
  end

  it "has the errors of the kernel's headers" do
    wanted = macros("E[A-Z0-9]+", "-include", "asm/errno.h").select { |_, number| number.between?(1, 511) }
    expect(wanted.size).to be > 130
    expect(wanted.values - generator.errors.values).to eq([])
    expect(generator.errors.reject { |name, number| number >= 512 || wanted[name] == number }).to eq({})
  end

  it "refuses two calls of one number, and unknown kinds" do
    two = "errors: {}\ncalls:\n- {name: a, x86_64: 1, kind: file}\n- {name: b, x86_64: 1, kind: file}\n"
    expect { SyscallsGenerator.new(two) }.to raise_error(SyscallsGenerator::Error, /x86_64 has several .* 1$/)
    expect { SyscallsGenerator.new("errors: {}\ncalls: [{name: a, kind: odd}]") }
      .to raise_error(SyscallsGenerator::Error, "a: unknown kind odd")
  end
end

RSpec.describe "The kernel's tracepoints" do
  kernel = Probescope::Tracing::Kernel
  path = Probescope::Tracing::Program.path("syscalls.bt")
  names = Probescope::Tracing::Program.tracepoints(path)

  it "of a program are known" do
    expect(names).to contain_exactly("raw_syscalls:sys_enter", "raw_syscalls:sys_exit",
                                     "sched:sched_process_exec", "sched:sched_process_exit")
    expect(Probescope::Tracing::Program.probes(path)).to eq(%w[function__here stats__done])
    expect(Probescope::Tracing::Program.merges(path)).to eq("longest_ns" => :max)
  end

  it "are all there, or a sentence says which one is missing" do
    Dir.mktmpdir do |folder|
      names.each { |name| FileUtils.mkdir_p(File.join(folder, *name.split(":"))) }
      kernel.new([folder]).tracepoints(names)
      FileUtils.rmdir(File.join(folder, "raw_syscalls/sys_exit"))
      expect { kernel.new([folder]).tracepoints(names) }
        .to raise_error(Probescope::Tracing::Error,
                        "this kernel has no tracepoint raw_syscalls:sys_exit, without which these events " \
                        "are not known")
      expect { kernel.new([File.join(folder, "none")]).tracepoints(names) }
        .to raise_error(Probescope::Tracing::Error, %r{lists no tracepoints \(.*/none is missing\)})
      expect(kernel.new([File.join(folder, "none")]).tracepoints([])).to be_nil
    end
  end
end

RSpec.describe Probescope::Commands::Syscalls::Report do
  # bpftrace takes out one tracepoint after the other.
  it "counts calls with one end up to the last flush" do
    half_told = {"1,0" => 2, "1,700" => 3, "1,900" => 161}
    output = Struct.new(:maps, :lost_events).new(
      {"wall_ns" => {"1" => 1}, "ended" => {"1" => 900}, "half_told" => half_told}, 0
    )
    result = Probescope::Tracing::Result.new(output, {by_pid: false, targets: [{pid: 1}]},
                                             Probescope::Tracing::Program.path("syscalls.bt"))
    report = described_class.new(result, Probescope::Tracing::Definitions::ALL.fetch("syscalls"))
    expect(report.more).to include(half_told: 5)
    expect(report.not_covered.join)
      .to include("5 calls of which the kernel told only the begin or only the end")
  end
end

RSpec.describe Probescope::Tracing::Result, "#rows_by_names" do
  # Two forked processes have other names at one address, and one name at two addresses.
  it "merges rows by their names, and not by their keys" do
    output = Struct.new(:maps, :lost_events).new(
      {"wall_ns" => {"1" => 1, "2" => 1},
       "row" => {"1,64,5" => ["a", "a.rb", 1, 5], "2,64,5" => ["b", "a.rb", 2, 5],
                 "2,128,5" => ["a", "a.rb", 1, 5]},
       "calls" => {"1,64,5" => 10, "2,64,5" => 200, "2,128,5" => 3000},
       "longest_ns" => {"1,64,5" => 7, "2,64,5" => 9, "2,128,5" => 8}}, 0
    )
    ended = {by_pid: false, targets: [{pid: 1}, {pid: 2}]}
    result = described_class.new(output, ended, Probescope::Tracing::Program.path("syscalls.bt"))
    rows = result.rows_by_names("calls") { |_, names| names }.to_h do |row|
      [row.names.first, %w[calls longest_ns].map { |map| row.number(map) }]
    end
    expect(rows).to eq("a" => [3010, 8], "b" => [200, 9])
  end

  it "has rows for figures without names, whose names the block knows" do
    output = Struct.new(:maps, :lost_events).new(
      {"wall_ns" => {"1" => 1}, "row" => {"1,64,5" => ["a", "a.rb", 1, 5]},
       "calls" => {"1,64,5" => 10, "1,1,5" => 200, "1,128,5" => 3000}, "unread" => {"1" => 200},
       "unnamed" => {"1,128,5" => 3000}}, 0
    )
    ended = {by_pid: false, targets: [{pid: 1}]}
    result = described_class.new(output, ended, Probescope::Tracing::Program.path("syscalls.bt"))
    rows = result.rows_by_names("calls") { |key, names| names || ["?", key.split(",").last.to_i] }
    expect(rows.to_h { |row| [row.names, row.number("calls")] })
      .to eq(["a", "a.rb", 1, 5] => 10, ["?", 5] => 3200)
    expect(result.lost).to include(unread: 3200)
  end
end
