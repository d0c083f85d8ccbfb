from __future__ import annotations

import collections
import json
import re

import pytest
from attacher import library
from tracing import start_tracer, stop_tracer

# Processes of this program call work() a known number of times, and run until their rows are
# flushed.
WORKING = """
import gate, logging, os, sys, threading, warnings

class Lost(Exception):
    pass

def work(n):
    return n + 1

def fails():
    try:
        raise Lost
    except Lost:
        return 1

def calls(count):
    for n in range(count):
        work(n)
        fails()

"""
DEV = ["-X", "dev"]


@pytest.fixture
def seen(bpf, children):
    """Counts the calls of work() and the raises in each process. The tracer attaches by the
    library's path, and so sees every process.
    """

    class Seen:
        def __init__(self):
            where = f"usdt:{library()}:probescope"
            # The main module of a process that multiprocessing spawned is called __mp_main__.
            is_work, is_lost = [
                f'/str(arg0) == "{name}" || str(arg0) == "__mp_main__.{name}"/' for name in ("work", "Lost")
            ]
            self._tracer = start_tracer(None, f"""
                {where}:function__stats {is_work} {{ @calls[pid] = sum(arg3); }}
                {where}:exception__stats {is_lost} {{ @raised[pid] = sum(arg3); }}""")  # fmt: skip
            children.append(self._tracer)

        def finish(self):
            stop_tracer(self._tracer)
            found = []
            for name in ("calls", "raised"):
                pairs = re.findall(rf"^@{name}\[(\d+)\]: (\d+)", self._tracer.out, re.MULTILINE)
                found.append({int(pid): int(count) for pid, count in pairs})
            return found

    return Seen()


def report_of(target, within=60):
    return json.loads(target.line("report ", within))


def test_forks_200_times_while_it_is_traced_without_a_warning(program, seen):
    target = program(WORKING + """
gate.on("function__stats", "exception__stats")
gate.flushed(1)
codes = []
for n in range(50):
    children = []
    for n in range(4):
        pid = os.fork()
        if not pid:
            calls(20)
            os._exit(n) if n % 2 else sys.exit(n)
        children.append(pid)
    calls(10)
    codes += [os.waitpid(pid, 0)[1] / 256 for pid in children]
gate.flushed()
gate.done(codes=codes)
""", options=["-W", "always", *DEV])  # fmt: skip
    assert collections.Counter(report_of(target)["codes"]) == {0: 50, 1: 50, 2: 50, 3: 50}
    assert target.err == ""
    for counts in seen.finish():
        assert counts.pop(target.pid) == 500
        # A child that ends by os._exit() does not flush the last part of a second. Several children
        # may have had the same PID.
        assert sum(counts.values()) == 100 * 20
        assert all(count % 20 == 0 for count in counts.values())


def test_processes_of_every_kind_are_traced_and_no_warning_is_ours(program, seen):
    target = program(WORKING + """
import multiprocessing, subprocess

def task(count):
    gate.on(*PROBES)
    calls(count)
    gate.flushed()

def daemon(count):
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    task(count)
    gate.touch("daemon")

def main():
    gate.on(*PROBES)
    processes = []
    for number, method in enumerate(["fork", "spawn", "forkserver"]):
        processes.append(multiprocessing.get_context(method).Process(target=task, args=(1 + number,)))
        processes[-1].start()
    if not (child := os.fork()):
        daemon(100)
        os._exit(0)
    os.waitpid(child, 0)
    for process in processes:
        process.join()
    codes = [process.exitcode for process in processes]
    codes.append(subprocess.call([sys.executable, "-c", "raise SystemExit(7)"]))
    codes.append(subprocess.call(["true"], preexec_fn=lambda: calls(1)))
    thread = threading.Thread(target=task, args=(1000,))
    thread.start()
    thread.join()
    gate.open("daemon")
    gate.done(codes=codes)

PROBES = ("function__stats", "exception__stats")
if __name__ == "__main__":
    main()
""", options=["-W", "always"])  # fmt: skip
    assert report_of(target)["codes"] == [0, 0, 0, 7, 0]
    assert target.err == ""
    for counts in seen.finish():
        assert sorted(counts.values()) == [1, 2, 3, 100, 1000]


# os.fork() warns when the application has other threads, with and without probescope.
def test_forks_of_a_threaded_program_warn_as_without_us(program, seen):
    source = (
        WORKING
        + """
stop = threading.Event()
threading.Thread(target=stop.wait).start()
if INSTALLED:
    gate.on("function__stats")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for n in range(20):
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
stop.set()
print(json.dumps([str(warning.message).replace(str(os.getpid()), "") for warning in caught]))
"""
    )
    plain = program("import json\nINSTALLED = False\n" + source.replace("import gate,", "import"))
    traced = program("import json\nINSTALLED = True\n" + source)
    assert [plain.wait(), traced.wait()] == [0, 0]
    assert traced.out == plain.out
    assert plain.out != ""


def test_the_first_interval_of_a_child_begins_at_the_fork(program, bpf, children):
    text = f'usdt:{library()}:probescope:stats__done {{ printf("done %d %llu %llu\\n", pid, arg1, arg2); }}'
    tracer = start_tracer(None, text)
    children.append(tracer)
    target = program("""
import gate, os, time

gate.on("stats__done")
gate.flushed(1)
while time.process_time() < 1.0:  # more than the child uses
    pass
child = os.fork()
if not child:
    gate.flushed(1)
    os._exit(0)
os.waitpid(child, 0)
gate.done(child=child)
""")
    child = report_of(target)["child"]
    stop_tracer(tracer)
    intervals = re.findall(rf"^done {child} (\d+) (\d+)$", tracer.out, re.MULTILINE)
    assert len(intervals) >= 2
    # The child has one thread of the application, which waits.
    for elapsed, cpu in intervals:
        assert int(cpu) <= min(int(elapsed) + 1_000_000, 500_000_000)


FORKS_IN_C = """
import ctypes, gate, os, random, signal, time

def work(n):
    return n + 1

# Skips CPython's own fork handlers and holds the GIL, as uWSGI does when started without threads.
fork = ctypes.PyDLL(None).fork
print("ready", flush=True)
hung = forks = 0
until = time.monotonic() + 4
while time.monotonic() < until and not hung:
    busy = time.perf_counter() + random.random() * 0.004
    while time.perf_counter() < busy:
        work(1)
    pid = fork()
    if pid == 0:
        for _ in range(5):
            time.sleep(0)
        os._exit(0)
    forks += 1
    deadline = time.monotonic() + 20
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            hung += 1
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            break
print("ended", forks, hung, flush=True)
time.sleep(1000)
"""


def test_a_child_that_was_forked_in_c_gets_the_gil(program, attach):
    target = program(FORKS_IN_C)
    target.line("ready")
    attach(target, "sample__stats", "function__stats", "exception__stats", "stats__done", cycles=1000)
    forks, hung = map(int, target.line("ended ", 60).split())
    assert (forks > 10, hung) == (True, 0)
