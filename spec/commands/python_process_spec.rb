# frozen_string_literal: true

require "spec_helper"
require "support/shared/commands_on_a_process"

RSpec.describe "The commands on a Python process", :bpf, :python do
  work = <<~PYTHON
    import signal
    import time


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

  it_behaves_like "a process under the commands", suffix: ".py", work: work, burn: burn, separator: ".", error: "ValueError",
                                                  allocates: "return Thing()", allocated: nil
end
