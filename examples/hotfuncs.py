"""A parcel service with a checksum in Python, and other work: examples/hotfuncs.rb in Python.

    python examples/hotfuncs.py            # Crc32.of in pure Python
    python examples/hotfuncs.py --fixed    # the same checksum from zlib, in C

A reader would not expect it to be slow: it is short, correct, and called once a parcel. A tracer
shows at once how much of the CPU it takes:

    PROBESCOPE=1 python examples/hotfuncs.py
    sudo probescope hot -p PID
"""

import argparse
import functools
import json
import os
import signal
import threading
import time
import zlib


def table():
    """The remainder of each byte, for CRC-32 as in IEEE 802.3."""
    for remainder in range(256):
        for _ in range(8):
            remainder = 0xEDB88320 ^ (remainder >> 1) if remainder & 1 else remainder >> 1
        yield remainder


class Crc32:
    """One table lookup for each byte."""

    TABLE = tuple(table())

    def of(self, data):
        crc = 0xFFFFFFFF
        lookup = self.TABLE
        for byte in data:
            crc = lookup[(crc ^ byte) & 0xFF] ^ (crc >> 8)
        return crc ^ 0xFFFFFFFF


class FastCrc32:
    """The same function from the standard library."""

    def of(self, data):
        return zlib.crc32(data)


class Depot:
    """Takes parcels in, checks them and writes labels."""

    CITIES = ("Aachen", "Bergen", "Cork", "Delft", "Evora", "Florence", "Ghent", "Haarlem")

    def __init__(self, checksum):
        self.checksum = checksum
        self.parcels = 0

    def handle(self):
        """One unit of work: each method below is called once."""
        self.parcels += 1
        record = self.receive(self.parcels)
        stamped = self.stamp(record)
        return self.label(self.sort(stamped))

    def receive(self, number):
        items = []
        for i in range(60):
            items.append({"sku": f"SKU-{number}-{i}", "grams": (number * 31 + i * 17) % 900})
        return {"number": number, "to": self.CITIES[number % len(self.CITIES)], "items": items}

    def stamp(self, record):
        body = json.dumps(record).encode()
        return {"record": record, "crc": self.checksum.of(body)}

    def sort(self, stamped):
        stamped["record"]["items"].sort(key=lambda item: (item["grams"], item["sku"]))
        return stamped

    def label(self, stamped):
        lines = []
        for item in stamped["record"]["items"]:
            lines.append("%-24s %6.3f kg" % (item["sku"], item["grams"] / 1000))  # noqa: UP031
        return f"{stamped['record']['to']} {stamped['crc']:x}\n" + "\n".join(lines)


class Clock:
    """--clock: the CPU time of each method by its own clock, without callees. This is the truth for a
    tracer's shares. It costs a microsecond a call, so it is only used on request."""

    def __init__(self):
        self.self_ns = {}
        self.callees = [0]

    def watch(self, instance, *methods):
        for name in methods:
            method = getattr(instance, name)
            timed = functools.partial(self.time, f"{type(instance).__name__}.{name}", method)
            setattr(instance, name, timed)

    def time(self, label, method, *arguments):
        start = time.thread_time_ns()
        self.callees.append(0)
        try:
            return method(*arguments)
        finally:
            elapsed = time.thread_time_ns() - start
            self.self_ns[label] = self.self_ns.get(label, 0) + elapsed - self.callees.pop()
            self.callees[-1] += elapsed

    def __str__(self):
        rows = sorted(self.self_ns.items(), key=lambda row: -row[1])
        return "".join(f"clock {label}={ns / 1e9:.3f}s\n" for label, ns in rows)


def options():
    parser = argparse.ArgumentParser(description="Ctrl-C stops it, kill -USR1 prints its counters.")
    add = parser.add_argument
    add("--fixed", action="store_true", help="take the checksum from zlib")
    add("--clock", action="store_true", help="print the CPU time of each method, by its own clock")
    add("--parcels", type=float, default=float("inf"), metavar="N", help="stop after N parcels")
    rate = "at most N parcels a second, so that both do the same work"
    add("--rate", type=float, metavar="N", help=rate)
    add("--seconds", type=float, metavar="S", help="stop after S seconds")
    return parser.parse_args()


def main():
    chosen = options()
    checksum = FastCrc32() if chosen.fixed else Crc32()
    depot, own = Depot(checksum), Clock()
    if chosen.clock:
        own.watch(checksum, "of")
        own.watch(depot, "handle", "receive", "stamp", "sort", "label")
    started = time.process_time(), time.monotonic()

    def report():
        cpu, wall = time.process_time() - started[0], time.monotonic() - started[1]
        print(f"parcels={depot.parcels} cpu={cpu:.3f}s wall={wall:.3f}s\n{own}", end="", flush=True)

    # A signal may come in the middle of a write, so the handler only sets a flag.
    word = {"stop": False, "report": False}
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: word.update(stop=True))
    signal.signal(signal.SIGUSR1, lambda *_: word.update(report=True))
    if chosen.seconds:
        timer = threading.Timer(chosen.seconds, word.update, kwargs={"stop": True})
        timer.daemon = True
        timer.start()
    print(f"hotfuncs: pid {os.getpid()}\nready", flush=True)

    while not word["stop"] and depot.parcels < chosen.parcels:
        depot.handle()
        if chosen.rate:
            time.sleep(max(0, depot.parcels / chosen.rate - (time.monotonic() - started[1])))
        if word["report"]:
            word["report"] = False
            report()
    report()


if __name__ == "__main__":
    main()
