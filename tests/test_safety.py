from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from probescope.abi import PROBES
from tracing import start_program, wait_for

ON = 'gate.on("function__stats", "exception__stats")\n'

# Makes calls, runs generators and handles exceptions until something arrives. ours(): collects our
# frames in the traceback.
BUSY = """
import ctypes, gate, json, os, signal, sys, threading, time

class Told(Exception):
    pass

def fails():
    try:
        raise ValueError
    except ValueError:
        return 1

def some(n):
    yield fails()
    yield n

def step(n):
    return sum(some(n))

def spin():
    n = 0
    while True:
        n += step(n % 7)

traces = []

def ours(error):
    trace = error.__traceback__
    while trace:
        if "/probescope/" in trace.tb_frame.f_code.co_filename:
            traces.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next

def arrives(error, act):
    try:
        act()
        spin()
    except error as caught:
        ours(caught)
        return 1

def raise_told(*_):
    raise Told

def timeouts(count):
    signal.signal(signal.SIGALRM, raise_told)
    return sum(arrives(Told, lambda: signal.setitimer(signal.ITIMER_REAL, 0.0005)) for _ in range(count))

def interrupts(count):
    def send():
        for _ in range(count):
            wanted.acquire()
            os.kill(os.getpid(), signal.SIGINT)
    wanted = threading.Semaphore(0)
    killer = threading.Thread(target=send)
    killer.start()
    got = sum(arrives(KeyboardInterrupt, wanted.release) for _ in range(count))
    killer.join()
    return got

def asynchronous(count):
    def run():
        got.append(arrives(Told, running.set))
    got = []
    for _ in range(count):
        running = threading.Event()
        thread = threading.Thread(target=run)
        thread.start()
        running.wait()
        ident = ctypes.c_ulong(thread.ident)
        assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Told)) == 1
        thread.join()
    return sum(got)

sys.setswitchinterval(0.0002)
"""


def report_of(target, within=100):
    return json.loads(target.line("report ", within))


def test_every_signal_and_asynchronous_exception_is_delivered_with_everything_attached(program, attach):
    count = int(os.environ.get("COUNT", 1000))
    deliver = (
        f"gate.done(got=[timeouts({count}), interrupts({count}), asynchronous({count})], traces=traces)\n"
    )
    # PROBESCOPE_FORCE=1 also enables the trace hook before 3.12.
    target = program(BUSY + ON + deliver, options=["-X", "dev"], env={"PROBESCOPE_FORCE": "1"})
    attach(target, *PROBES)
    assert report_of(target) == {"got": [count] * 3, "traces": []}
    assert target.err == ""


def test_they_are_delivered_while_tracers_come_and_go(program, attach):
    deliver = "gate.done(got=[timeouts(100), interrupts(100), asynchronous(100)], traces=traces)\n"
    target = program(BUSY + deliver)
    attach(target, *PROBES, cycles=100_000)
    assert report_of(target) == {"got": [100] * 3, "traces": []}
    assert target.err == ""


def test_tracers_come_and_go_under_load_and_nothing_grows(program, attach):
    target = program(BUSY + """
for _ in range(7):
    threading.Thread(target=spin, daemon=True).start()
print("ready", flush=True)
spin()
""")  # fmt: skip
    target.line("ready")

    def resident():
        with open(f"/proc/{target.pid}/statm") as file:
            return int(file.read().split()[1]) * 4096

    probes = os.environ.get("CYCLED", "function__stats exception__stats").split()
    attach(target, *probes, cycles=10, await_hooks=True).finish(200)
    before = resident()
    cycles = attach(target, *probes, cycles=int(os.environ.get("CYCLES", 50)), await_hooks=True).finish(400)
    assert len(cycles) >= 50
    assert resident() - before < 3 << 20
    assert target.process.poll() is None
    assert target.err == ""


def test_installs_and_uninstalls_as_often_as_it_likes_and_finds_who_listens_already(program, attach):
    target = program("""
import gate, probescope, time
answers = [probescope.install(), probescope.install(), probescope.status()["installed"],
           probescope.uninstall(), probescope.uninstall(), probescope.status()["installed"],
           probescope.install(), probescope.status()["installed"]]
gate.on("function__stats")
answers += [probescope.uninstall(), gate.state("function__stats")]
for _ in range(100):
    probescope.install()
    probescope.uninstall()
missed = 0
for _ in range(50):
    probescope.install()
    until = time.monotonic() + 5
    while gate.state("function__stats") != "on" and time.monotonic() < until:
        time.sleep(0.001)
    missed += gate.state("function__stats") != "on"
    probescope.uninstall()
gate.done(answers=answers, missed=missed)
""", options=["-W", "always"])  # fmt: skip
    attach(target, "function__stats")
    report = report_of(target)
    assert report["answers"] == [True, True, True, True, False, False, True, True, True, "off"]
    assert report["missed"] == 0
    assert target.err == ""


@pytest.mark.skipif("sys.version_info < (3, 12)", reason="of another CPython: 3.12 and later")
def test_one_refusal_names_who_took_all_tool_ids(program, attach):
    target = program("""
import gate, probescope, sys, time
for id in range(6):
    sys.monitoring.use_tool_id(id, f"tool{id}" if id else "\\ud800" * 300)
def f(): return 1
while gate.state("line") != "refused" or gate.state("exception__stats") != "refused":
    f()
probes = probescope.status()["probes"]
refused = {name: reason for name, (state, reason) in probes.items() if state == "refused"}
print("refused", flush=True)
while gate.state("line") != "off":
    f()
for id in range(6):
    sys.monitoring.free_tool_id(id)
gate.on("line")
gate.done(refused=refused)
""", options=["-W", "always"])  # fmt: skip
    first = attach(target, "line", "exception__stats").attached()
    target.line("refused")
    first.finish()
    attach(target, "line")
    refused = report_of(target)["refused"]
    for reason in (refused["line"], refused["exception__stats"]):
        assert "tool ids are taken" in reason
        assert "tool1, tool2, tool3, tool4, tool5" in reason
    assert target.err == ""


def test_a_tracer_may_be_there_before_the_interpreter_starts(program, attach, children, tmp_path):
    keeper = program("import gate\ngate.done()\n")
    attach(keeper, *PROBES, by_path=True).attached()
    source = BUSY + "print(sum(step(n) for n in range(2000)))\n"
    for number in range(10):
        directory = tmp_path / str(number)
        directory.mkdir()
        children.append(start_program(source, directory, options=["-X", "dev"]))
    for target in children[-10:]:
        assert (target.wait(), target.out, target.err) == (0, "2001000\n", "")


FILES_PROGRAM = """
import os, threading, probescope
probescope.install()
kept = [open(os.devnull) for _ in range(9)]

def work():
    while True:
        sum(range(1000))

threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
was = "off"
while True:
    sum(range(1000))
    state = probescope.status()["probes"]["sample__stats"][0]
    if state != was: print("now", state, flush=True)
    was = state
"""


def test_the_watcher_has_no_file_of_the_applications_and_the_worker_has_all(attach, program):
    """docs/decisions/213.

    The worker sometimes runs finalizers of the application, which close files.
    """
    if tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2]) < (5, 9):
        pytest.skip("Linux before 5.9 gives no thread a table of files of its own")
    started = program(FILES_PROGRAM)
    started.line("ready")
    tasks = Path(f"/proc/{started.pid}/task")
    the_applications = set(os.listdir(tasks / str(started.pid) / "fd"))

    def ours():
        """Returns the open files of the watcher and of the worker."""
        names = {task: (task / "comm").read_text() for task in tasks.iterdir()}
        found = [set(os.listdir(task / "fd")) for task, name in names.items() if name == "probescope\n"]
        return sorted(found, key=len)

    tracer = attach(started, "sample__stats", "stats__done").attached()
    wait_for(
        "a watcher with files of its own",
        lambda: [one == the_applications for one in ours()] == [False, True],
    )
    for times in range(1, 4):
        tracer.tell("detach")
        wait_for("off", lambda times=times: started.out.count("now off") == times)
        tracer.tell("attach")
        wait_for("on", lambda times=times: started.out.count("now on") == times + 1)
        assert [one == the_applications for one in ours()] == [False, True]
    tracer.finish()
    assert set(os.listdir(tasks / str(started.pid) / "fd")) == the_applications
