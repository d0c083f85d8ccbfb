"""The program that bench/looking.rb traces. subject.rb is the Ruby version and describes it."""

import signal
import sys
import time


class Subject:
    def empty(self):
        pass

    def raise_at(self, depth):
        if depth == 0:
            raise ValueError("x")
        self.raise_at(depth - 1)

    def calls(self, times):
        for _ in range(times):
            self.empty()

    def raises(self, times):
        for _ in range(times):
            try:
                self.raise_at(10)
            except ValueError:
                pass

    def allocations(self, times):
        for _ in range(times):
            object()


def main():
    units = 0

    def tell(_number, _frame):
        print(f"units={units} cpu={time.process_time()}", flush=True)

    signal.signal(signal.SIGUSR1, tell)
    work = getattr(Subject(), sys.argv[1])
    print("ready", flush=True)
    while True:
        work(int(sys.argv[2]))
        units += 1


main()
