"""Units of known work. work.rb is the Ruby version."""

import ast
import asyncio
import os
import time
import traceback
import zlib

import probescope

# Calls of C: about 0.05 ms, 0.5 ms and 5 ms each. Pairs of number and bytes.
CALLS = [(6, 200_000), (1, 2_000_000), (1, 10_000_000)]


def begin(_status, _headers, _wrong=None):
    pass


def site(environment, start):
    start("404 Not Found" if environment["PATH_INFO"] == "/none" else "200 OK", [])
    return [b"truth"]


SITE = probescope.wsgi(site)


class TruthError(Exception):
    pass


class Thing:
    pass


def raised_in_a_text():
    """Returns how many exceptions traceback itself raises to format this one: one for each line
    that it cannot parse.
    """
    raised = 0
    parse = ast.parse

    def counting(*arguments, **options):
        nonlocal raised
        try:
            return parse(*arguments, **options)
        except SyntaxError:
            raised += 1
            raise

    ast.parse = counting
    try:
        traceback.format_exc()
    finally:
        ast.parse = parse
    return raised


class Work:
    """The page also has every figure that a command shows.

    random: decides how the work is divided.
    """

    def __init__(self, page, random):
        self._page = page
        self._step = 1000 + random.randrange(4000)
        self._weigh = 7000 - self._step
        self._raises = 1 + random.randrange(3)
        self._depth = 1 + random.randrange(20)
        self._things = 5 + random.randrange(20)
        self._looks = 1 + self._things % 3
        self._calls, self._bytes = CALLS[random.randrange(len(CALLS))]
        self._number = 0
        self._data = None

    def unit(self):
        self._page.resume()
        self._page.time("step", self.step, self._step)
        self._page.time("weigh", self.weigh, self._weigh)
        for _ in range(self._raises):
            self.fail_and_rescue()
        self.make(self._things)
        self.tell()
        self.serve()
        self.look(self._looks)
        self._page.add("work", 11 + self._raises * (2 + self._depth))
        self._page.note()

    def c_unit(self):
        """Calls C for most of the time. The next calls are where the VM makes its first check after
        the C call.
        """
        self._data = self._data or bytes(self._bytes)
        self._page.time("crunch", self.crunch, self._data)
        self._page.time("trifle", self.trifle)
        self._page.add("work", 3)
        self._page.note()

    def linger(self):
        """Takes longer than 10 ms, without CPU."""
        self._page.time("nap", self.nap)
        self._page.add("work", 2)
        self._page.note()

    def litter(self):
        self._page.time("waste", self.waste, collects=True)
        self._page.add("work", 2)
        self._page.note()

    # These return the ns of their bodies.
    def step(self, n):
        began = time.monotonic_ns()
        total = 0
        while n > 0:
            total += n ^ 21
            n -= 1
        return time.monotonic_ns() - began

    def weigh(self, n):
        began = time.monotonic_ns()
        total = 1.5
        while n > 0:
            total = total * 0.5 + n
            n -= 1
        return time.monotonic_ns() - began

    def dig(self, depth):
        if depth == 0:
            raise TruthError("known")  # raised
        self.dig(depth - 1)

    def fail_and_rescue(self):
        try:
            self.dig(self._depth)
        except TruthError:
            self._page.add("raised")
            self._page.add("raised_anywhere")

    def make(self, n):
        while n > 0:
            Thing()  # made
            self._page.add("things")
            n -= 1

    def tell(self):
        try:
            self.dig(1)
        except TruthError:
            self._page.add("raised")
            self._page.add("raised_anywhere", 1 + RAISED_IN_A_TEXT)
            traceback.format_exc()  # told
            self._page.add("texts")

    def serve(self):
        self._number += 1
        path = "/orders/%d" % self._number if self._number % 5 else "/none"
        SITE({"REQUEST_METHOD": "GET", "PATH_INFO": path}, begin)
        self._page.add("requests:/orders/*" if self._number % 5 else "requests:(not found)")

    def look(self, times):
        """Makes three system calls each time, one of which fails."""
        while times > 0:
            os.stat(__file__)
            os.access("/nowhere/at/all", os.F_OK)
            self._page.add("looks", 2)
            self._page.add("looks_failed")
            os.getpriority(os.PRIO_PROCESS, os.getpid())
            self._page.add("asked")
            times -= 1

    def waste(self):
        """Makes lists in cycles, which only the garbage collector frees."""
        began = time.monotonic_ns()
        n = 500
        while n > 0:
            one = []
            one.append([one])
            n -= 1
        return time.monotonic_ns() - began

    async def doze(self):
        await asyncio.sleep(0.012)

    def crunch(self, data):
        began = time.monotonic_ns()
        for _ in range(self._calls):
            zlib.crc32(data)
        return time.monotonic_ns() - began

    def trifle(self):
        pass

    def nap(self):
        began = time.monotonic_ns()
        time.sleep(0.012)
        return time.monotonic_ns() - began


# Measured here, while there is only one thread.
try:
    object.__new__(Work).dig(1)
except TruthError:
    RAISED_IN_A_TEXT = raised_in_a_text()
