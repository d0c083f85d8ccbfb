"""Latency probes of functions, traced with a real bpftrace."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Dict, List, Tuple

import pytest
from tracing import Child, python, start_tracer, stop_tracer, wait_for

SHOP = """
import asyncio, functools, os, sys, threading, time
import probescope
from probescope import latency

def wrapped(function):
    @functools.wraps(function)
    def wrapper(*given, **named):
        return function(*given, **named)
    return wrapper

class Base:
    __slots__ = ()
    @latency
    def total(self, value): return value

class Cart(Base):
    @latency
    def total(self, value): return super().total(value) + 1
    @functools.lru_cache(maxsize=None)
    @latency
    def cached(self): return 9
    @latency
    def pay(self, first, second=2, *rest, key, other=4, **more):
        return [first, second, rest, key, other, more]
    @staticmethod
    @latency
    def rate(): return 3
    @latency
    @classmethod
    def open(cls): return cls.__name__
    @property
    @latency
    def size(self): return 7
    @latency
    def fails(self): raise ValueError("no")
    @latency
    def recovers(self):
        try: self.fails()
        except ValueError: return None
    @latency
    def naps(self, seconds): time.sleep(seconds)
    @latency
    def count_down(self, left): return self.count_down(left - 1) if left else 0
    @latency
    @wrapped
    def first(self): return 1
    @latency
    @wrapped
    def second(self): return 2
    @latency
    def numbers(self):
        yield 1
        time.sleep(0.03)
        yield 2
    @latency
    async def fetches(self, seconds, result):
        await asyncio.sleep(seconds)
        if result is None: raise KeyError("none")
        return result
    @latency
    async def streams(self):
        for i in range(3):
            await asyncio.sleep(0)
            yield i
    @latency(name="Cart.named")
    def other(self): return 1

def make(result):
    @latency
    def made(): return result
    return made

@latency
def deep(left): return deep(left - 1) if left else 0

@latency
def edition(): return 1

async def all_of(cart):
    said = [await cart.fetches(0.03, 1)]
    try: await cart.fetches(0, None)
    except KeyError: said.append("KeyError")
    try: await asyncio.wait_for(cart.fetches(30, 1), 0.02)
    except asyncio.TimeoutError: said.append("timeout")
    said.append(await asyncio.gather(*(cart.fetches(0, i) for i in range(5))))
    said.append([i async for i in cart.streams()])
    return said

def use_all(cart):
    said = [cart.pay(1, 3, 5, key=6, more=7), cart.rate(), cart.open(), cart.size, cart.recovers(),
            cart.count_down(4)]
    try: cart.fails()
    except ValueError as error: said.append(str(error))
    said += [cart.first(), cart.second(), list(cart.numbers()), cart.other(), make(1)(), make(2)()]
    said += [cart.total(3), cart.cached(), cart.cached()]
    said += asyncio.run(all_of(cart))
    threads = [threading.Thread(target=lambda: [edition() for _ in range(5)]) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    try: deep(5000)
    except RecursionError: said.append("deep")
    start = time.monotonic_ns()
    cart.naps(0.03)
    return said, time.monotonic_ns() - start

def await_all(state):
    while any(probe["listened"] != state for probe in latency.probes().values()): time.sleep(0.002)

unlistened = use_all(Cart())[0]
functions = [Cart.pay, Cart.__dict__["open"], Cart.naps, edition]
print("ready", *latency.probes(), flush=True)
print("path", latency.probes()["edition"]["path"], flush=True)
for line in sys.stdin:
    if line == "use\\n":
        await_all(True)
        assert not any(probe["error"] for probe in latency.probes().values()), latency.probes()
        said, took = use_all(Cart())
        assert said == unlistened, said
        late = latency(name="edition")(lambda: 2)
        while not latency.probes()["edition"]["listened"]: time.sleep(0.002)
        late()
        print("used", took, flush=True)
    elif line == "left\\n":
        await_all(False)
        assert use_all(Cart())[0] == unlistened
        assert functions == [Cart.pay, Cart.__dict__["open"], Cart.naps, edition]
        print("left", flush=True)
    elif line == "fork\\n":
        parent, child = os.getpid(), os.fork()
        while not child and os.getppid() == parent:
            edition()
            time.sleep(0.005)
        if not child: os._exit(0)
        print("forked", child, flush=True)
"""


def text_of(names: List[str]) -> str:
    return "\n".join(
        f'usdt:*:latency:"{name}" {{ printf("{name} %llu %d\\n", arg0, arg1); }}' for name in names
    )


def listen(pid: int, text: str) -> Child:
    """Starts a tracer, and returns when it is attached to all its probes.

    A semaphore is raised before bpftrace's program for the probe is attached. Versions of bpftrace
    attach in different orders, from the first probe or from the last. So the program has a timer at
    both ends: once both timers have printed, every probe between them is attached.
    """
    beats = [f'interval:ms:20 {{ printf("beat {n}\\n"); }}' for n in range(2)]
    tracer = start_tracer(pid, "\n".join([beats[0], text, beats[1]]))
    for n in range(2):
        tracer.line(f"beat {n}")
    return tracer


def calls(out: str) -> Dict[str, List[Tuple[int, int]]]:
    """Returns {name: [(elapsed in ns, outcome), ...]}."""
    seen: Dict[str, List[Tuple[int, int]]] = {}
    for name, elapsed, outcome in re.findall(r"^(\S+) (\d+) (\d)$", out, re.M):
        seen.setdefault(name, []).append((int(elapsed), int(outcome)))
    return seen


@pytest.fixture
def shop(program, tmp_path):
    return program(SHOP, env={"XDG_RUNTIME_DIR": str(tmp_path)}, stdin=subprocess.PIPE)


def tell(app, line):
    app.process.stdin.write(line.encode() + b"\n")
    app.process.stdin.flush()


@pytest.mark.smoke
def test_each_call_is_told_with_its_outcome(bpf, shop, children):
    names = shop.line("ready ").split()
    tracer = listen(shop.pid, text_of(names))
    children.append(tracer)
    tell(shop, "use")
    took = int(shop.line("used "))
    wait_for("the last call", lambda: len(calls(tracer.out).get("edition", ())) >= 21)
    stop_tracer(tracer)
    tell(shop, "left")
    shop.line("left")
    assert shop.err == ""

    seen = calls(tracer.out)
    outcomes = {name: [outcome for _, outcome in told] for name, told in seen.items()}
    once = "pay rate open size first second named recovers numbers cached total"
    for name in once.split():
        assert outcomes[f"Cart.{name}"] == [0], name
    assert outcomes["Base.total"] == [0]
    assert outcomes["make.made"] == [0, 0]
    assert outcomes["Cart.fails"] == [1, 1]
    assert outcomes["Cart.count_down"] == [0] * 5
    assert outcomes["Cart.streams"] == [0]
    assert outcomes["edition"] == [0] * 21
    assert set(outcomes["deep"]) == {1} and len(outcomes["deep"]) > 800
    # In this order: after 30 ms; KeyError; cancelled after 20 ms; five concurrent calls.
    assert outcomes["Cart.fetches"] == [0, 1, 1, 0, 0, 0, 0, 0]
    fetches = [elapsed for elapsed, _ in seen["Cart.fetches"]]
    assert fetches[0] >= 29_000_000 and 10_000_000 < fetches[2] < 29e9
    assert seen["Cart.numbers"][0][0] >= 30_000_000
    assert 30_000_000 <= seen["Cart.naps"][0][0] <= took


def test_a_forked_child_is_reached_by_the_path(bpf, shop, children):
    path = shop.line("path ")
    tell(shop, "fork")
    child = shop.line("forked ")
    tracer = start_tracer(None, f'usdt:{path}:latency:"edition" {{ printf("from %d\\n", pid); }}')
    children.append(tracer)
    wait_for("the child", lambda: f"from {child}\n" in tracer.out)


def test_what_cannot_be_traced_says_why_and_what_can_stays_as_it_is():
    source = """
import functools, inspect, pickle
import probescope
from probescope import latency
def said(function):
    try: print(function())
    except Exception as error: print(f"{type(error).__name__}: {error}")
def made():
    @functools.wraps(len)
    def inner(a: int, b=2, *, c=3, d) -> str: return a, b, c, d
    inner.mark = 4
    return inner
class Cart:
    @property
    def size(self): return 1
    def pay(self, a: int = 1, *, b: "str" = "x") -> None: "Pays."
    def twice(self): pass
said(lambda: latency(len))
said(lambda: latency(Cart))
said(lambda: latency(Cart.size))
said(lambda: latency(functools.partial(print)))
said(lambda: latency(functools.lru_cache(None)(Cart.pay)))
def outer():
    def inner(self): return self.name
    return inner
class Made:
    name = "bound"
    bound = outer()
said(lambda: latency(Made().bound)())
said(lambda: latency(name="a b")(lambda: 1))
said(lambda: latency(name="x" * 128)(lambda: 1))
said(lambda: latency(name="a\\0b")(lambda: 1))
before = Cart.pay, inspect.signature(Cart.pay), inspect.getsourcelines, Cart.pay.__doc__, Cart.pay.__code__
said(lambda: latency(Cart.pay) is Cart.pay and latency(Cart.pay) is Cart.pay)
said(lambda: (Cart.pay, inspect.signature(Cart.pay), inspect.getsourcelines, Cart.pay.__doc__,
              Cart.pay.__code__) == before)
said(lambda: latency(name="again")(Cart.pay))
said(lambda: latency(name="Cart.méthode?")(Cart.twice) is Cart.twice)
said(lambda: latency(lambda: 1)())
one = made()
traced = latency(name="made")(one)
said(lambda: (traced is not one, latency(name="made")(traced) is traced, traced(1, d=5), traced.mark,
              traced.__wrapped__ is len))
kept = ("__name__", "__qualname__", "__doc__", "__annotations__", "__dict__", "__kwdefaults__",
        "__defaults__", "__module__")
said(lambda: [getattr(traced, name) == getattr(one, name) for name in kept])
said(lambda: {name: (probe["listened"], probe["error"]) for name, probe in latency.probes().items()})
said(lambda: [latency.untrace(Cart.pay), latency.untrace(Cart.pay), Cart.pay.__code__ is before[4]])
said(lambda: "Cart.pay" in latency.probes())
"""
    lines = python("-c", source).stdout.splitlines()
    starts = [
        "Error: <built-in function len> is no function written in Python",
        "Error: Cart is a class: write @probescope.latency above its methods",
        "Error: a property: write @probescope.latency below @property",
        "Error: functools.partial",
        "Error: <functools._lru_cache_wrapper",
        "bound",
        "Error: a b: no name for a probe",
        "Error: xxx",
        "Error: a\0b: embedded null character",
        "True",
        "True",
        "Error: Cart.pay has the probe Cart.pay already",
        "Error: Cart.méthode?: no name for a probe",
        "1",
        "(True, True, (1, 2, 3, 5), 4, True)",
        str([True] * 8),
        "{'made': (False, None), 'lambda.lambda': (False, None), 'Cart.pay': (False, None), "
        "'outer.inner': (False, None)}",
        "[True, False, True]",
        "False",
    ]
    assert len(lines) == len(starts), lines
    for line, start in zip(lines, starts):
        assert line.startswith(start), line
    assert lines[4].endswith("below what wraps it")


def test_a_function_is_no_slower_while_nobody_listens():
    """The functions run in turns in one process. Up to three attempts, because other programs may
    disturb one.
    """
    source = """
import time, probescope
def plain(x): return x
@probescope.latency
def traced(x): return x
def make(probe):
    @probe
    def nested(x, *, y=1): return x
    return nested
nested, traced_nested = make(lambda function: function), make(probescope.latency)
def turn_of(name):
    space = {"time": time, "f": globals()[name]}
    exec("def turn():\\n start = time.perf_counter()\\n for i in range(5000): f(i)\\n"
         " return time.perf_counter() - start", space)
    return space["turn"]
ways = [turn_of(name) for name in ("plain", "traced", "nested", "traced_nested")]
turns = [[way() for way in ways] for _ in range(200)]
a, b, c, d = (sorted(way)[70] for way in zip(*turns))
print(max(b / a, d / c))
"""
    assert any(float(python("-c", source).stdout) <= 1.1 for _ in range(3))


def test_beside_a_profiler_a_debugger_and_other_probes(bpf, program, children):
    source = """
import cProfile, sys
import probescope
@probescope.latency
def traced(left): return traced(left - 1) if left else 0
def by_debugger(frame, event, argument):
    global seen
    seen += frame.f_code is traced.__code__
profile = cProfile.Profile()
profile.enable() # before 3.12, a profiler that starts later would hide calls from us for a moment
print("ready", flush=True)
for line in sys.stdin:
    while (not probescope.latency.probes()["traced"]["listened"]
           or probescope.status()["probes"]["function__return"][0] != "on"): pass
    seen = 0
    profile.clear()
    sys.settrace(by_debugger)
    for _ in range(20): traced(4)
    profile.disable()
    sys.settrace(None)
    counted = [entry.callcount for entry in profile.getstats() if entry.code is traced.__code__]
    print("seen", seen, counted, probescope.latency.probes()["traced"]["error"], flush=True)
"""
    app = program(source, stdin=subprocess.PIPE)
    app.line("ready")
    others = "function__return", "sample", "request__done", "exception__raise"
    text = "\n".join(f'usdt:*:probescope:{name} {{ printf("{name} %s\\n", str(arg0)); }}' for name in others)
    functions = listen(app.pid, text)
    children.append(functions)
    tracer = listen(app.pid, text_of(["traced"]))
    children.append(tracer)
    tell(app, "both")
    assert app.line("seen ") == "100 [100] None"
    wait_for(
        "all calls",
        lambda: tracer.out.count("traced ") >= 100 and functions.out.count("return traced\n") >= 100,
    )
    assert [outcome for _, outcome in calls(tracer.out)["traced"]] == [0] * 100
    assert app.err == ""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="of another CPython: 3.12 and later")
def test_a_probe_refused_for_want_of_a_tool_id_works_when_a_second_one_gets_an_id(bpf, program, children):
    app = program("""
import sys, time
import probescope
probescope.install()
for id in range(6): sys.monitoring.use_tool_id(id, "tool %d" % id)
@probescope.latency
def first(): return 1
@probescope.latency
def second(): return 2
print("ready", flush=True)
while True:
    first(), second()
    error = probescope.latency.probes()["first"]["error"]
    if error and sys.monitoring.get_tool(4) == "tool 4":
        sys.monitoring.free_tool_id(4)
        print("refused:", error, flush=True)
    time.sleep(0.005)
""")
    app.line("ready")
    one = start_tracer(app.pid, text_of(["first"]))
    children.append(one)
    holders = "tool 0, tool 1, tool 2, tool 3, tool 4, tool 5"
    assert app.line("refused: ") == f"all sys.monitoring tool ids are taken: {holders}"
    both = start_tracer(app.pid, text_of(["second"]))
    children.append(both)
    wait_for("the other calls", lambda: len(calls(both.out).get("second", ())) >= 3)
    wait_for("the first calls", lambda: len(calls(one.out).get("first", ())) >= 3)
    assert app.err == ""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="of another CPython: 3.12 and later")
def test_beside_function_probes(bpf, program, children):
    app = program("""
import sys, time
import probescope
probescope.install()
@probescope.latency
def traced(): return 1
def plain(): return traced()
print("ready", flush=True)
while True:
    plain()
    assert not probescope.latency.probes()["traced"]["error"]
    time.sleep(0.005)
""")
    app.line("ready")
    functions = start_tracer(app.pid, 'usdt:*:probescope:function__entry { printf("%s\\n", str(arg0)); }')
    children.append(functions)
    wait_for("functions", lambda: functions.out.count("traced\n") >= 3)
    tracer = start_tracer(app.pid, text_of(["traced"]))
    children.append(tracer)
    wait_for("the calls", lambda: len(calls(tracer.out).get("traced", ())) >= 3)
    stop_tracer(tracer)
    seen = functions.out.count("traced\n")
    wait_for("them as functions, still", lambda: functions.out.count("traced\n") >= seen + 3)
