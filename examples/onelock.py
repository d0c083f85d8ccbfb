"""A shipping desk where every thread waits for one lock: examples/onelock.rb in Python.

    python examples/onelock.py            # asks the carrier's server while it holds the lock
    python examples/onelock.py --fixed    # asks before it takes the lock

Packers pack orders and ship them. Each order gets a number from the carrier's server, which answers
after 5 ms, and the desk writes the number down under a lock. A clerk looks orders up under the same
lock. The code is short and correct, and the CPU is idle, so no profile shows why more packers do
not ship more orders. A tracer shows what the threads wait for, and which function ends the wait:

    PROBESCOPE=1 python examples/onelock.py
    sudo probescope waits -p PID
"""

import argparse
import itertools
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time


class Carrier:
    """A packer's connection to the carrier's server."""

    ANSWERS_AFTER = 0.005

    @classmethod
    def connect(cls, count):
        """Starts a server in a process of its own, which ends with this one. Returns the
        connections, when the server is ready."""
        pairs = [socket.socketpair() for _ in range(count)]
        theirs = [their.fileno() for _, their in pairs]
        subprocess.Popen([sys.executable, __file__, "--serve", *map(str, theirs)], pass_fds=theirs)
        for _, their in pairs:
            their.close()
        carriers = [cls(our) for our, _ in pairs]
        for carrier in carriers:
            carrier.line.readline()
        return carriers

    def __init__(self, connection):
        self.line = connection.makefile("rw")

    def serve(self):
        try:
            self.say("ready\n")
            for order in iter(self.line.readline, ""):
                time.sleep(self.ANSWERS_AFTER)
                self.say(f"CARRIER-{order}")
        except OSError:
            pass  # the desk has ended

    def number(self, order):
        self.say(f"{order}\n")
        return self.line.readline().rstrip()

    def say(self, text):
        self.line.write(text)
        self.line.flush()


class Waits:
    """How often the threads in one method found the lock taken, and how long it took them to get it,
    by the program's own clock: the truth for a tracer's figures."""

    def __init__(self, lock):
        self.lock = lock
        self.count = 0
        self.seconds = 0.0

    def asks(self):
        return time.monotonic(), self.lock.locked()

    def got(self, asked):
        """Called with the lock held."""
        began, taken = asked
        self.seconds += time.monotonic() - began
        self.count += taken


class Desk:
    """The numbers of all orders that were shipped."""

    def __init__(self):
        self.lock = threading.Lock()
        self.numbers = []
        self.finds = 0
        self.ship_waits, self.find_waits = Waits(self.lock), Waits(self.lock)

    def pack(self):
        time.sleep(0.002)

    def ship(self, order, carrier):
        asked = self.ship_waits.asks()
        with self.lock:
            self.ship_waits.got(asked)
            self.numbers.append(carrier.number(order))

    def find(self):
        """Returns the number of the newest order."""
        asked = self.find_waits.asks()
        with self.lock:
            self.find_waits.got(asked)
            self.finds += 1
            return self.numbers[-1] if self.numbers else None


class FixedDesk(Desk):
    """The same, without the lock while the carrier answers."""

    def ship(self, order, carrier):
        number = carrier.number(order)
        asked = self.ship_waits.asks()
        with self.lock:
            self.ship_waits.got(asked)
            self.numbers.append(number)


def options():
    parser = argparse.ArgumentParser(description="Ctrl-C stops it, kill -USR1 prints its counters.")
    add = parser.add_argument
    add("--fixed", action="store_true", help="ask the carrier before taking the lock")
    add("--packers", type=int, default=4, metavar="N", help="threads that ship orders (%(default)s)")
    add("--orders", type=int, metavar="N", help="stop after N orders")
    add("--seconds", type=float, metavar="S", help="stop after S seconds")
    add("--serve", type=int, nargs="+", metavar="FD", help="be the carrier's server on these sockets")
    return parser.parse_args()


def serve(descriptors):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for descriptor in descriptors:
        carrier = Carrier(socket.socket(fileno=descriptor))
        threading.Thread(target=carrier.serve).start()


def work(desk, first, step, last, carrier):
    for order in itertools.count(first, step):
        if last and order > last:
            return
        desk.pack()
        desk.ship(order, carrier)


def look_up(desk, packers):
    while any(packer.is_alive() for packer in packers):
        desk.find()
        time.sleep(0.01)


def main():
    chosen = options()
    if chosen.serve:
        return serve(chosen.serve)
    desk = FixedDesk() if chosen.fixed else Desk()
    carriers = Carrier.connect(chosen.packers)
    started = time.process_time(), time.monotonic()

    def report():
        cpu, wall = time.process_time() - started[0], time.monotonic() - started[1]
        ship, find = desk.ship_waits, desk.find_waits
        print(
            f"orders={len(desk.numbers)} finds={desk.finds} ship_waits={ship.count} "
            f"ship_waited={ship.seconds:.3f}s find_waits={find.count} find_waited={find.seconds:.3f}s "
            f"cpu={cpu:.3f}s wall={wall:.3f}s",
            flush=True,
        )

    # The main thread sleeps until there is a word in this queue. A handler may add one.
    words = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: words.put("stop"))
    signal.signal(signal.SIGUSR1, lambda *_: words.put("report"))
    print(f"onelock: pid {os.getpid()}, {chosen.packers} packers\nready", flush=True)

    packers = []
    for first, carrier in enumerate(carriers, 1):
        arguments = (desk, first, len(carriers), chosen.orders, carrier)
        packers.append(threading.Thread(target=work, args=arguments, daemon=True))
    clerk = threading.Thread(target=look_up, args=(desk, packers), daemon=True)
    for thread in [*packers, clerk]:
        thread.start()

    def end():
        clerk.join(chosen.seconds)
        words.put("stop")

    threading.Thread(target=end, daemon=True).start()
    while words.get() == "report":
        report()
    report()


if __name__ == "__main__":
    main()
