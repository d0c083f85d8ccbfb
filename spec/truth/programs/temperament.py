"""python temperament.py NAME SEED DIRECTORY. The Ruby version, temperament.rb, describes it."""

import asyncio
import itertools
import os
import queue
import random
import signal
import sys
import threading
import time

import probescope
from ledger import Ledger
from work import Work


class Temperament:
    """Each method distributes the work in its own way."""

    def __init__(self, ledger, seed):
        self._ledger = ledger
        self._seed = seed
        self._over = False
        signal.signal(signal.SIGTERM, self._end)

    def cpu(self):
        work = self._new_work()
        self._ready()
        while not self._over:
            work.unit()

    def c_calls(self):
        work = self._new_work()
        self._ready()
        while not self._over:
            work.c_unit()

    def system_calls(self):
        """Releases the GIL for calls of 0.1 ms and 2 ms."""
        work = self._new_work()
        self._ready()
        while not self._over:
            work.unit()
            for _ in range(20):
                os.stat(__file__)
            time.sleep(0.0001)
            work.unit()
            time.sleep(0.002)

    def slow_calls(self):
        work = self._new_work()
        self._ready()
        while not self._over:
            work.unit()
            work.linger()

    def garbage(self):
        """Makes much garbage."""
        work = self._new_work()
        self._ready()
        while not self._over:
            work.unit()
            work.litter()

    def pool(self):
        """Four workers. The main thread hands out jobs of about 1, 5 or 20 ms, and waits most of
        the time.
        """
        jobs = queue.Queue(8)
        workers = self._in_threads([jobs] * 4, units=[1, 5, 20][self._seed % 3])
        page = self._ledger.page(process=True)
        self._ready()
        while not self._over:
            jobs.put(True)
            page.note()
        self._finish(workers, [jobs] * 4)

    def parked(self):
        """Four workers without a pause, and a main thread that waits for their end."""
        workers = self._in_threads([self] * 4, process=True)
        self._ready()
        for worker in workers:
            worker.join()

    def get(self):
        """Acts as a queue that always has a job."""
        return not self._over

    def served(self):
        """Eight threads. Another thread gives one of them a job every 0.2 s.

        The main thread waits for their end.
        """
        jobs = queue.Queue()
        workers = self._in_threads([jobs] * 8)
        page = self._ledger.page(process=True)

        def hand_out():
            while not self._over:
                jobs.put(True)
                time.sleep(0.2)
                page.note()
            self._finish(workers, [jobs] * 8)

        threading.Thread(target=hand_out).start()
        self._ready()
        for worker in workers:
            worker.join()

    def crowd(self):
        """Twelve threads that get work in turns, one every 80 ms, and run for 12 ms after their
        work.
        """
        queues = [queue.Queue() for _ in range(12)]
        workers = self._in_threads(queues, linger=True)
        page = self._ledger.page(process=True)
        self._ready()
        for one in itertools.cycle(queues):
            if self._over:
                break
            one.put(True)
            time.sleep(0.08)
            page.note()
        self._finish(workers, queues)

    def bursts(self):
        work = self._new_work()
        self._ready()
        while not self._over:
            for _ in range(10):
                work.unit()
            work.linger()
            time.sleep(0.3)

    def tasks(self):
        """A hundred asyncio tasks."""
        page = self._ledger.page(process=True)

        async def one(number, work):
            while not self._over:
                work.unit()
                await asyncio.sleep(0.002 * (number % 5))
                if number % 10 == 0:
                    page.add("begun:doze")
                    page.note()
                    await work.doze()
                    page.add("work")
                    page.add("calls:doze")
                    page.note()

        async def everything():
            # Made before counting begins: on a busy machine the last task starts seconds later.
            works = [Work(page, random.Random(self._seed + number)) for number in range(100)]
            self._ready()
            await asyncio.gather(*(one(number, work) for number, work in enumerate(works)))

        asyncio.run(everything())

    def forks(self):
        children = [self._fork(number) for number in range(2)]
        self._ready()
        while not self._over:
            time.sleep(0.01)
        for pid in children:
            os.kill(pid, signal.SIGTERM)
        for pid in children:
            os.waitpid(pid, 0)

    def deep_stacks(self):
        work = self._new_work()
        self._ready()
        self._descend(300, work)

    def _new_work(self):
        return Work(self._ledger.page(process=True), random.Random(self._seed))

    def _in_threads(self, queues, linger=False, process=False, units=1):
        """process: the first thread notes the process's counters. units: units of a job."""
        barrier = threading.Barrier(len(queues) + 1)

        def serve(number, jobs):
            work = Work(self._ledger.page(process and number == 0), random.Random(self._seed + number))
            barrier.wait()
            while jobs.get():
                for _ in range(units):
                    work.unit()
                if linger:
                    work.linger()

        threads = [threading.Thread(target=serve, args=each) for each in enumerate(queues)]
        for thread in threads:
            thread.start()
        barrier.wait()
        return threads

    @staticmethod
    def _finish(threads, queues):
        for jobs in queues:
            jobs.put(None)
        for thread in threads:
            thread.join()

    def _fork(self, number):
        pid = os.fork()
        if pid:
            return pid
        self._ledger.forget()
        work = Work(self._ledger.page(process=True), random.Random(self._seed + number))
        while not self._over:
            work.unit()
            time.sleep(0.001)
            work.linger()
        self._ledger.write()
        os._exit(0)

    def _descend(self, depth, work):
        if depth:
            return self._descend(depth - 1, work)
        while not self._over:
            work.unit()
        return None

    @staticmethod
    def _ready():
        print("ready", flush=True)

    def _end(self, _number, _frame):
        self._over = True


# With several programs at once, the low priority leaves the CPU to the starting tracers.
if "TRUTH_GROUP" in os.environ:
    os.setpriority(os.PRIO_PROCESS, 0, 15)
# Each function has its own probe, which costs nothing without a tracer.
probescope.latency(Work.step)
probescope.latency(Work.nap)

if __name__ == "__main__":
    _name, _seed, _directory = sys.argv[1:]
    _ledger = Ledger(_directory)
    getattr(Temperament(_ledger, int(_seed)), _name)()
    _ledger.write()
