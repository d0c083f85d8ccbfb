# frozen_string_literal: true

require "spec_helper"
require "support/shared/commands_on_a_process"
require "support/process_trees"

RSpec.describe "The commands on a Python process", :bpf, :python do
  work = <<~PYTHON
    import signal
    import time
    import traceback


    class Thing:
        pass


    class Worker:
        def call(self):
            pass

        def fail(self):
            try:
                raise ValueError("known")
            except ValueError:
                pass

        def allocate(self):
            return Thing()

        def nap(self):
            time.sleep(0.02)

        def tell(self):
            try:
                raise ValueError("told")
            except ValueError:
                return traceback.format_exc()


    def main():
        asked = []
        signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
        worker = Worker()
        kept = []
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
            if not asked:
                continue
            asked.clear()
            for _ in range(1000):
                worker.call()
            for _ in range(500):
                worker.fail()
            for _ in range(2000):
                kept.append(worker.allocate())
            for _ in range(3):
                worker.tell()
                worker.nap()
            print("worked", flush=True)


    main()
  PYTHON
  burn = <<~PYTHON
    def burn():
        for number in range(10_000):
            number += 1


    print("ready", flush=True)
    while True:
        burn()
  PYTHON

  short = <<~PYTHON
    def work():
        pass


    print("ready", flush=True)
    input()
    for _ in range(1000):
        work()
  PYTHON
  deaf = <<~PYTHON
    print("ready", flush=True)
    sum(range(10**13))
  PYTHON

  it_behaves_like "a process under the commands",
                  suffix: ".py", work: work, burn: burn, short: short, deaf: deaf,
                  separator: ".", error: "ValueError",
                  allocates: "return Thing()", allocated: nil,
                  formatted: "traceback.format_exc", asks: "traceback.format_exc()"

  it "lines and gc report what it did" do
    Dir.mktmpdir do |folder|
      File.write("#{folder}/worker.py", <<~PYTHON)
        import gc
        import time


        def burn(number):
            for _ in range(300_000):
                number += 1


        def litter():
            for _ in range(50):
                loop = []
                loop.append(loop)


        print("ready", flush=True)
        while True:
            burn(0)
            litter()
            gc.collect()
            time.sleep(0.001)
      PYTHON
      process = target("#{folder}/worker.py").ready
      skip_unless_served(process, "sample", "gc__done")
      commands = %w[lines gc].map { |name| probescope_start(name, "-p", process.pid, "-d", 2, "--json") }
      lines, collections = commands.map do |command|
        expect(command.wait).to be_success, command.to_s
        JSON.parse(command.out)["rows"]
      end
      expect(lines.first)
        .to include("line" => be_between(6, 7), "function" => "burn", "self_share" => be > 0.3)
      full = collections.find { |row| row["kind"] == "generation 2" }
      expect(full).to include("count" => be_positive, "total_ns" => be_positive, "freed_objects" => 50,
                              "live_objects" => nil)
    end
  end

  # Makes a virtual environment with a copy of the package, and a program that does not import it.
  # The environment's Python has its own name.
  def in_virtualenv(folder)
    tool(Support::Python.interpreter, "-m", "venv", "--without-pip", folder)
    package = %w[probescope probescope.pth].map { |name| File.join(Support::Python::PACKAGE, name) }
    FileUtils.cp_r(package, Dir["#{folder}/lib/python*/site-packages"].first)
    File.symlink("python", "#{folder}/bin/probed-python")
    File.write("#{folder}/shop.py", <<~PYTHON)
      import time


      def order(number):
          return number


      print("ready", flush=True)
      while True:
          order(1)
          time.sleep(0.01)
    PYTHON
    ["#{folder}/bin/probed-python", "#{folder}/shop.py"]
  end

  # Replaces the file as an upgrade does: running processes keep the old file.
  def upgrade(library)
    FileUtils.cp(library, "#{library}.new")
    File.rename("#{library}.new", library)
  end

  it "is one of a virtualenv, one with its library replaced on disk, one in a container, and one " \
     "beside a Ruby: one table has them all" do
    Dir.mktmpdir do |folder|
      command = in_virtualenv(folder)
      old = probescope_start("run", "--", *command)
      old.await_line(/ready/)
      Dir["#{folder}/lib/python*/site-packages/probescope/_native*.so"].each { |library| upgrade(library) }
      new = probescope_start("run", "--", *command)
      new.await_line(/ready/)
      contained = inside(container("PROBESCOPE=1 exec #{command.join(" ")}"))
      ruby = target("def order(number) = number\n$stdout.sync = true\nputs 'ready'\nloop { order(1); " \
                    "sleep 0.01 }").ready

      listed = probescope("ps", "--json").json["rows"].to_h do |row|
        [row["pid"], row.values_at("name", "runtime", "version", "deleted")]
      end
      python = ->(deleted) { ["probed-python", "python", Support::Python.full_version, deleted] }
      expect(listed).to include(old.pid => python[true], new.pid => python[false], contained => python[false])
      expect(listed[ruby.pid]).to match([anything, "ruby", RUBY_VERSION, false])
      doctor = probescope("doctor", "-p", old.pid)
      expect(doctor.out).to match(
        /^ok  process #{old.pid}: python #{Regexp.escape(Support::Python.full_version)}, probescope/
      )
      expect(doctor.out).to include("its library was replaced or deleted on disk")

      rows = probescope("calls", "-p", ruby.pid, "--comm", "probed-python", "--by-pid", "-d", 1, "--json",
                        "--top", 0).json["rows"]
      called = rows.to_h { |row| [row["pid"], row["function"]] }
      expect(called)
        .to eq(old.pid => "order", new.pid => "order", contained => "order", ruby.pid => "Object#order")
    end
  end
end
