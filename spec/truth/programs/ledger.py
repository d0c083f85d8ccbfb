"""What a program counts about itself while it runs: the twin of ledger.rb, which describes it."""

import collections
import contextlib
import json
import os
import threading
import time


class Page:
    """One thread's counters."""

    def __init__(self):
        self._counters = collections.Counter()
        self.notes = []

    def add(self, counter, number=1):
        self._counters[counter] += number

    def time(self, name, function, *arguments):
        """Calls a function that is named so."""
        cpu, wall = time.thread_time_ns(), time.monotonic_ns()
        function(*arguments)
        wall = time.monotonic_ns() - wall
        cpu = time.thread_time_ns() - cpu
        self._counters["wall:" + name] += wall
        self._counters["cpu:" + name] += cpu
        self._counters["calls:" + name] += 1

    def note(self):
        self._counters["cpu"] = time.thread_time_ns()
        self.notes.append((time.monotonic_ns(), dict(self._counters)))


class Ledger:
    def __init__(self, directory):
        self._directory = directory
        self._pages = []
        self._lock = threading.Lock()

    def page(self):
        """To be called once by each thread."""
        page = Page()
        with self._lock:
            self._pages.append(page)
        return page

    def forget(self):
        """A forked child begins a ledger of its own."""
        self._pages.clear()

    def write(self):
        path = os.path.join(self._directory, f"{os.getpid()}.json")
        with open(path + ".new", "w") as file:
            json.dump({"pages": [page.notes for page in self._pages]}, file)
        with contextlib.suppress(FileNotFoundError):
            os.rename(path + ".new", path)
