"""Real tools in the same process. A tool's report is the same with and without probescope. The
figures of probescope are right beside each tool.
"""

from __future__ import annotations

import json
import sys

# tool(path): runs each tool over work() of shop.py. The tool's final report contains nothing that
# depends on time.
TOOLS = """
import bdb, gate, io, json, os, re, sys, threading, warnings

SHOP = '''
def leaf(n):
    if n % 2:
        return n
    return n + 1

def numbers(n):
    for i in range(n):
        yield leaf(i)

def fails(n):
    \"\"\"
    >>> fails(1)
    Traceback (most recent call last):
    KeyError: 1
    >>> work()
    37
    \"\"\"
    raise KeyError(n)

def work():
    total = sum(numbers(8))
    try:
        fails(total)
    except KeyError:
        total += 5
    thread = threading.Thread(target=leaf, args=(1,))
    thread.start()
    thread.join()
    return total

import threading
'''
with open("shop.py", "w") as file: file.write(SHOP)
import shop

class Coverage:
    def start(self):
        import coverage
        self.tool = coverage.Coverage(data_file=None, include=[shop.__file__])
        self.tool.start()
    def stop(self):
        self.tool.stop()
        _, statements, _, missing, _ = self.tool.analysis2(shop.__file__)
        self.report = [statements, missing]

class Profile:
    def start(self):
        self.tool = __import__("cProfile").Profile()
        self.tool.enable()
    def stop(self):
        self.tool.disable()
        self.tool.create_stats()
        self.report = sorted((key[2], row[:2]) for key, row in self.tool.stats.items()
                             if key[0] == shop.__file__)

class SlowProfile:
    def start(self): pass
    def stop(self):
        with warnings.catch_warnings():  # deprecated since 3.15
            warnings.simplefilter("ignore")
            tool = __import__("profile").Profile()
        tool.runcall(shop.work)
        tool.create_stats()
        self.report = sorted((key[2], row[:2]) for key, row in tool.stats.items() if key[0] == shop.__file__)

class Steps:
    def start(self):
        self.report = report = []
        class Debugger(bdb.Bdb):
            def user_line(self, frame):
                if frame.f_code.co_filename == shop.__file__: report.append(frame.f_lineno)
                self.set_step()
            def user_return(self, frame, value):
                if frame.f_code.co_filename == shop.__file__: report.append(frame.f_code.co_name)
            def user_exception(self, frame, error):
                if frame.f_code.co_filename == shop.__file__: report.append(error[0].__name__)
        self.tool = Debugger()
        self.tool.reset()
        sys.settrace(self.tool.trace_dispatch)
    def stop(self):
        sys.settrace(None)

class Trace:
    def start(self):
        self.tool = __import__("trace").Trace(count=1, trace=0)
        sys.settrace(self.tool.globaltrace)
        threading.settrace(self.tool.globaltrace)
    def stop(self):
        sys.settrace(None)
        threading.settrace(None)
        counts = self.tool.results().counts
        self.report = sorted((line, count) for (path, line), count in counts.items() if path == shop.__file__)

class Monitoring:
    def start(self):
        self.report = report = []
        m, id = sys.monitoring, sys.monitoring.COVERAGE_ID
        m.use_tool_id(id, "coverage of another")
        def started(code, offset):
            if code.co_filename != shop.__file__: return m.DISABLE
            report.append(code.co_name)
        def line(code, line):
            if code.co_filename == shop.__file__: report.append(line)
            return m.DISABLE
        m.register_callback(id, m.events.PY_START, started)
        m.register_callback(id, m.events.LINE, line)
        m.set_events(id, m.events.PY_START | m.events.LINE)
        m.restart_events()
    def stop(self):
        m, id = sys.monitoring, sys.monitoring.COVERAGE_ID
        m.set_events(id, 0)
        m.free_tool_id(id)
        # Events that it disabled are reported again when another tool restarts events: at most once
        # more for each line.
        self.report = sorted(set(map(str, self.report)))

class Memory:
    def start(self):
        __import__("tracemalloc").start(3)
        self.before = [object() for _ in range(500)]
    def stop(self):
        import tracemalloc
        kept = [bytearray(100) for _ in range(1000)]
        shot = tracemalloc.take_snapshot()
        traced = sum(s.count for s in shot.statistics("lineno")
                     if s.traceback[0].lineno in (LINE_OF_KEPT, LINE_OF_KEPT - 6))
        tracemalloc.stop()
        self.report = [2000 <= traced < 2020 or traced, tracemalloc.is_tracing()]

class Doctest:
    def start(self): pass
    def stop(self):
        import doctest
        self.report = list(doctest.testmod(shop))

class Pdb:
    def start(self): pass
    def stop(self):
        import pdb
        out = io.StringIO()
        commands = io.StringIO("tbreak shop.leaf\\nc\\np n\\nup\\np i\\ns\\nn\\nr\\nc\\n")
        debugger = pdb.Pdb(stdin=commands, stdout=out, nosigint=True, readrc=False)
        debugger.use_rawinput = False
        result = debugger.runcall(shop.work)
        self.report = [result, re.sub("(?i)breakpoint [0-9]+", "", out.getvalue())]

class Fault:
    def start(self): pass
    def stop(self):
        import faulthandler, tempfile
        with tempfile.TemporaryFile("w+") as file:
            def dump(): faulthandler.dump_traceback(file, all_threads=False)
            dump()
            file.seek(0)
            self.report = [line.split('"')[-1] for line in file if "File" in line][:2]

LINE_OF_KEPT = 1 + open(__file__).read().split("kept = [byte")[0].count("\\n")
NAMES = ["Steps", "Trace", "Memory", "Doctest", "Pdb", "Fault"]
try:
    import coverage
    NAMES.append("Coverage")
except ImportError:
    pass
if hasattr(sys, "monitoring"): NAMES.append("Monitoring")
NAMES += ["Profile", "SlowProfile"]
PROBES = "function__stats", "exception__stats", "object__stats"
reports, works = {}, 0

def here(): gate.on(*PROBES)
def gone(): gate.off(*PROBES)

def turn(word, condition):
    print(word, flush=True)
    condition()

def session(name, before=None, within=None):
    global works
    if before: before()
    tool = globals()[name]()
    tool.start()
    if within: within()
    shop.work()
    tool.stop()
    reports.setdefault(name, []).append(tool.report)
"""

# Sessions without a tracer; with a tracer before and after; a tracer attaches within; a tracer
# detaches within.
ORDERS = """
for name in NAMES: session(name)
turn("attach", here)
for name in NAMES:
    session(name)
    session(name)
for name in NAMES:
    turn("detach", gone)
    session(name, within=lambda: turn("attach", here))
    session(name, within=lambda: turn("detach", gone))
    turn("attach", here)
gate.done(reports=reports)
"""


def test_what_other_tools_report_is_the_same_in_every_order(program, attach):
    target = program(TOOLS + ORDERS)
    tracer, seen = None, 0
    while not target.out.count("\nreport ") and not target.out.startswith("report "):
        words = [line for line in target.out.splitlines() if line in ("attach", "detach")]
        if target.process.poll() is not None:
            raise AssertionError(str(target))
        for word in words[seen:]:
            seen += 1
            if word == "attach" and not tracer:
                tracer = attach(target, "function__stats", "exception__stats", "object__stats").attached()
            elif word == "detach" and tracer:
                tracer.finish()
                tracer = None
    reports = json.loads(target.line("report "))["reports"]
    assert {name: [one for one in found if one != found[0]] for name, found in reports.items()} == {
        name: [] for name in reports
    }
    assert target.err == ""


COUNTS = """
turn("ready", here)
gate.flushed(1)
for _ in range(10): shop.work()
for name in NAMES: session(name)
gate.flushed()
for _ in range(10): shop.work()
gate.flushed()
gate.done(sessions=len(NAMES), names=NAMES)
"""


def test_what_we_report_is_right_beside_them(trace):
    run = trace(TOOLS.replace('PROBES = "function__stats", "exception__stats", "object__stats"',
                              'PROBES = "function__stats", "exception__stats"') + COUNTS,
                {"function__stats": ["function", "calls", "raised"],
                 "exception__stats": ["function", "raised", "rescued"]},
                )  # fmt: skip
    rows = run.totals("function__stats")
    calls = {name: row["calls"] for name, row in rows.items()}
    # doctest, pdb and profile call work() once more each. doctest also calls fails() once more.
    works = 20 + run.report["sessions"] + 3
    raised = run.totals("exception__stats")["shop.fails"]["raised"]
    if sys.version_info >= (3, 12):
        assert (calls["shop.work"], calls["shop.numbers"], calls["shop.fails"]) == (works, works, works + 1)
        assert (calls["shop.leaf"], rows["shop.fails"]["raised"], raised) == (9 * works, works + 1, works + 1)
    else:
        # After another profiler starts, calls are missed until the watcher's next check. The last
        # two tools use the profile hook.
        assert works - 3 <= calls["shop.work"] <= works
        assert raised == works + 1
