"""A program's counters while it runs. ledger.rb is the Ruby version and describes them."""

import collections
import contextlib
import gc
import json
import os
import threading
import time


class Collections:
    """Totals of the garbage collector, from its own callbacks."""

    def __init__(self):
        self.number = self.ns = self.cpu_ns = self._began = self._cpu_began = 0
        gc.callbacks.append(self._told)

    def _told(self, phase, _):
        # A thread may lose its CPU while it reads its CPU time: within the time that others count
        # for the collection, or before it.
        cpu = time.thread_time_ns()
        if phase == "start":
            self._began, self._cpu_began = time.monotonic_ns(), cpu
        else:
            self.number += 1
            self.ns += time.monotonic_ns() - self._began
            self.cpu_ns += cpu - self._cpu_began


class Page:
    """One thread's counters."""

    # ns: a longer pause gets a note at its end.
    PAUSE = 2_000_000

    def __init__(self, collected):
        """collected: the Collections, if the page has the process's counters, too."""
        self._counters = collections.Counter()
        self.notes = []
        self._collected = collected

    def add(self, counter, number=1):
        self._counters[counter] += number

    def time(self, name, function, *arguments, collects=False):
        """Calls a function with this name, and returns the ns of its body or None."""
        collections = self._collected.cpu_ns if collects else 0
        cpu, wall = time.thread_time_ns(), time.monotonic_ns()
        inner = function(*arguments)
        wall = time.monotonic_ns() - wall
        cpu = time.thread_time_ns() - cpu
        if collects:
            self._counters["gc:" + name] += self._collected.cpu_ns - collections
        self._counters["wall:" + name] += wall
        self._counters["cpu:" + name] += cpu
        self._counters["off:" + name] += max(wall - cpu, 0)
        if inner is not None:
            self._counters["inner:" + name] += inner
            self._counters["inner_off:" + name] += max(inner - cpu, 0)
        self._counters["calls:" + name] += 1

    def note(self):
        self._counters["cpu"] = time.thread_time_ns()
        for name, value in self._of_process().items():
            self._counters[name] = value
        self.notes.append((time.monotonic_ns(), dict(self._counters)))

    def _of_process(self):
        if not self._collected:
            return {}
        collected = self._collected
        return {
            "process:cpu": time.process_time_ns(),
            "process:collections": collected.number,
            "process:gc": collected.ns,
            "process:gc_cpu": collected.cpu_ns,
        }

    def close(self):
        """Writes the last note, when the program has ended."""
        self.notes.append((time.monotonic_ns(), dict(self._counters)))

    def resume(self):
        """Writes a note after a pause, in which this thread counted nothing.

        The process may have counted: in other threads, and in the library.
        """
        now = time.monotonic_ns()
        if self.notes and now - self.notes[-1][0] > self.PAUSE:
            self.notes.append((now, {**self.notes[-1][1], **self._of_process()}))


class Ledger:
    def __init__(self, directory):
        self._directory = directory
        self._pages = []
        self._lock = threading.Lock()
        self._collected = Collections()

    def page(self, process=False):
        """Each thread calls this once."""
        page = Page(self._collected if process else None)
        with self._lock:
            self._pages.append(page)
        return page

    def forget(self):
        """Begins a new ledger in a forked child."""
        self._pages.clear()

    def write(self):
        for page in self._pages:
            page.close()
        path = os.path.join(self._directory, f"{os.getpid()}.json")
        with open(path + ".new", "w") as file:
            json.dump({"pages": [page.notes for page in self._pages]}, file)
        with contextlib.suppress(FileNotFoundError):
            os.rename(path + ".new", path)
