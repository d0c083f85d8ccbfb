"""bpftrace prints its maps last, and its count of lost events. A stream without them says so, and the
command takes care that they come.
"""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path

import pytest
from probescope.command import machine
from probescope.command.display import TOP
from probescope.command.probed_process import find
from probescope.command.programs import probes
from probescope.command.programs import program as path_of
from probescope.command.trace import Measurement, Output, check_process, command, keys
from tracing import ROOT, wait_for

RECORDINGS = sorted((ROOT / "spec/fixtures/bpftrace").glob("*/flow.jsonl"))
WARNING = "bpftrace ended without its last figures: more events may be lost than are counted"
# Lines of 0.2 KB: many more than fit into the pipe and into bpftrace's buffers of events.
FLOOD = """
import gate

def NAME():
    pass

print("ready", flush=True)
gate.on("function__entry", "function__return", "stats__done")
gate.flushed(2)
for _ in range(20_000):
    NAME()
print("called", flush=True)
gate.done()
""".replace("NAME", "a_function_whose_name_is_as_long_as_bpftrace_has_room_for")


def options(pid):
    shown = {"json": False, "top": TOP, "min": 0, "sort": None, "color": "never"}
    return Namespace(pid=pid, failed=False, slower=0, max_overhead=None, own=[], **shown)


@pytest.mark.parametrize("recorded", RECORDINGS, ids=lambda path: path.parent.name)
def test_a_stream_whose_output_was_cut_off_says_so(recorded, capfd):
    recording = recorded.read_bytes().split(b'{"recording":')[1]
    lines = [line for line in recording.split(b"\n")[1:] if not line.startswith(b'{"is":')]
    cut = [line for line in lines if b'"type": "map"' not in line]
    assert len(cut) < len(lines)
    for shown in (lines, cut):
        output = Output(options(40001), "flow", probes(path_of("flow")))
        for line in shown:
            output.take(line)
        output.finish(keys("flow", None))
        assert (WARNING in capfd.readouterr().err) == (shown is cut)


class Halted(Measurement):
    """Reads nothing more of bpftrace until bpftrace has begun to remove its probes: any room in the
    pipe could let its write end before the signal arrives.
    """

    def __init__(self, words, output, process, names, semaphores):
        super().__init__(words, output, process, names)
        self._listens = lambda: all(process.listened(semaphores))

    def _until(self, deadline):
        wait_for("bpftrace's end", lambda: not self._listens(), within=120)
        super()._until(deadline)


def tracer_of(pid):
    """Returns the folder in /proc of the bpftrace that traces a process."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if Path(words[0].decode()).name == "bpftrace" and str(pid).encode() in words:
            return folder
    raise AssertionError(f"no bpftrace traces {pid}")


def test_the_pipe_is_emptied_before_bpftrace_is_interrupted(bpf, program, capfd):
    started = program(FLOOD)
    path = path_of("flow")
    names = probes(path)
    started.line("ready")
    process = find(started.pid)
    output = Output(options(started.pid), "flow", names)
    words = command(machine.bpftrace().path, started.pid, str(path), [], keys("flow", None))
    semaphores = check_process(process, names)
    measurement = Halted(words, output, process, names, semaphores)
    try:
        measurement.attach(semaphores)
        started.line("called")
        waits_in = tracer_of(started.pid) / "wchan"
        wait_for("a full pipe", lambda: "pipe" in waits_in.read_text())
        time.sleep(0.2)
        assert "pipe" in waits_in.read_text()
    finally:
        status = measurement.end()
    assert status == 0
    assert output.result.has_maps
    # bpftrace 0.17 reports a loss only if another event follows on the same CPU (decision 220).
    output.result.numbered.fired(output.result.sum("number"))
    assert output.result.numbered.missing > 0
    output.finish(keys("flow", None))
    assert WARNING not in capfd.readouterr().err
