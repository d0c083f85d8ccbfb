"""An archive that makes the same folders again and again: examples/mkdir.rb in Python.

    python examples/mkdir.py            # makes the folders of each record
    python examples/mkdir.py --fixed    # remembers which folders it has made

Each record goes into a folder of its day, in the folder of its station. The archive makes both
folders, and ignores the error if they exist. So there is no race, no error in a log, and two system
calls and two exceptions too many for each record. A tracer shows which function makes calls that
fail, and with which error:

    PROBESCOPE=1 python examples/mkdir.py
    sudo probescope syscalls --failed -p PID
"""

import argparse
import os
import shutil
import signal
import tempfile
import threading
import time


class Archive:
    def __init__(self, root):
        self.root = root
        # Records stored, calls of mkdir, and how many of these said that the folder exists.
        self.records = self.mkdirs = self.existed = 0

    def store(self, station, day, value):
        folder = self.make(self.make(self.root, station), day)
        with open(os.path.join(folder, "values.csv"), "a") as file:
            file.write(f"{self.records},{value}\n")
        self.records += 1

    def make(self, parent, name):
        """Returns the folder."""
        folder = os.path.join(parent, name)
        self.mkdirs += 1
        try:
            os.mkdir(folder)
        except FileExistsError:
            self.existed += 1
        return folder


class FixedArchive(Archive):
    """The same, but each folder is made once."""

    def __init__(self, root):
        super().__init__(root)
        self.made = {}

    def make(self, parent, name):
        if (parent, name) not in self.made:
            self.made[parent, name] = super().make(parent, name)
        return self.made[parent, name]


def options():
    parser = argparse.ArgumentParser(description="Ctrl-C stops it, kill -USR1 prints its counters.")
    add = parser.add_argument
    add("--fixed", action="store_true", help="remember which folders were made")
    add("--folder", metavar="DIR", help="where the archive is (a temporary folder, removed at the end)")
    add("--stations", type=int, default=16, metavar="N", help="number of stations (%(default)s)")
    add("--records", type=float, default=float("inf"), metavar="N", help="stop after N records")
    add("--seconds", type=float, metavar="S", help="stop after S seconds")
    return parser.parse_args()


def main():
    chosen = options()
    root = chosen.folder or tempfile.mkdtemp("archive")
    archive = (FixedArchive if chosen.fixed else Archive)(root)
    started = time.process_time(), time.monotonic()

    def report():
        cpu, wall = time.process_time() - started[0], time.monotonic() - started[1]
        print(
            f"records={archive.records} mkdirs={archive.mkdirs} existed={archive.existed} "
            f"cpu={cpu:.3f}s wall={wall:.3f}s",
            flush=True,
        )

    # A signal may come in the middle of a write, so the handler only sets a flag.
    word = {"stop": False, "report": False}
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: word.update(stop=True))
    signal.signal(signal.SIGUSR1, lambda *_: word.update(report=True))
    if chosen.seconds:
        timer = threading.Timer(chosen.seconds, word.update, kwargs={"stop": True})
        timer.daemon = True
        timer.start()
    print(f"mkdir: pid {os.getpid()}, {chosen.stations} stations\nready", flush=True)

    while not word["stop"] and archive.records < chosen.records:
        station = archive.records % chosen.stations
        archive.store(f"station-{station}", "2026-11-26", archive.records * 31 % 900)
        if word["report"]:
            word["report"] = False
            report()
    report()
    if not chosen.folder:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
