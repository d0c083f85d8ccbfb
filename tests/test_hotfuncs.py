"""Compares the figures for examples/hotfuncs.py with independent ones: its own number of parcels,
and perf, which can unwind Python from 3.13 on.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_sampling import attempts
from tracing import ROOT

EXAMPLE = ROOT / "examples/hotfuncs.py"
RUN = """
import gate, runpy, sys
gate.on({probe!r})
gate.flushed(1)
sys.argv = ["hotfuncs.py", "--parcels", "{parcels}"]
found = runpy.run_path({path!r}, run_name="__main__")
gate.flushed(2)
print("report {{}}", flush=True)
gate.open("end")
"""
# Methods that the program calls once for each parcel. The sort calls its key function for each of
# 60 items.
METHODS = ["Depot.handle", "Depot.receive", "Depot.stamp", "Crc32.of", "Depot.sort", "Depot.label"]


def test_calls_are_as_many_as_the_program_did(trace):
    source = RUN.format(probe="function__stats", parcels=500, path=str(EXAMPLE))
    env = {"PROBESCOPE_FUNCTIONS": f"{EXAMPLE.parent}/**"}
    run = trace(source, {"function__stats": ["function", "calls"]}, env=env)
    assert "parcels=500 " in run.program.out
    calls = {
        name.rpartition("__main__.")[2]: row["calls"] for name, row in run.totals("function__stats").items()
    }
    found = {name: calls[name] for name in METHODS}
    assert found == dict.fromkeys(METHODS, 500)
    keys = [count for name, count in calls.items() if name.endswith("<lambda>")]
    assert keys == [500 * 60]


def leaves(script: str) -> "dict[str, int]":
    """Counts samples by their innermost Python function. script: the output of `perf script`, whose
    stacks begin with the innermost frame.
    """
    found: "dict[str, int]" = {}
    for stack in script.split("\n\n"):
        frame = re.search(r"py::(.*):\S*$", stack, re.MULTILINE)
        if frame and "py::Depot.handle:" in stack:
            found[frame[1]] = found.get(frame[1], 0) + 1
    return found


def perf(*arguments):
    done = subprocess.run(["perf", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.version_info < (3, 13), reason="of another CPython: 3.13 and later")
@pytest.mark.skipif(not shutil.which("perf"), reason="perf is not installed")
def test_the_crc_has_the_share_that_perf_gives_it(trace, tmp_path):
    """perf samples the same process at the same time, by the kernel's clock. `-X perf_jit` lets it
    unwind Python.
    """
    source = RUN.format(probe="sample__stats", parcels=6000, path=str(EXAMPLE))
    ours, theirs = {"Crc32.of": 0}, {"Crc32.of": 0}

    def check():
        (tmp_path / "end").unlink(missing_ok=True)
        run = trace(source, {"sample__stats": ["function", "self"]}, options=["-X", "perf_jit"], finish=False)
        pid, data, joined = run.program.pid, tmp_path / f"data{run.program.pid}", tmp_path / "joined"
        record = [
            "perf", "record", "-q", "-k", "1", "-e", "cpu-clock", "-F", "299",
            "--call-graph", "dwarf,32768",
        ]  # fmt: skip
        recorder = subprocess.Popen([*record, "-o", str(data), "-p", str(pid)], stderr=subprocess.DEVNULL)
        try:
            run.finish(120)
            run.open("end")  # the process writes its data for perf when it ends
            assert run.program.wait() == 0, run.program
            assert recorder.wait(60) == 0
            perf("inject", "-j", "-i", data, "-o", joined)
            found = leaves(perf("script", "-i", joined, "-F", "ip,sym"))
        finally:
            recorder.kill()
            Path(f"/tmp/jit-{pid}.dump").unlink(missing_ok=True)
        rows = {name: row["self"] for name, row in run.totals("sample__stats").items()}
        for name, samples in found.items():
            theirs[name] = theirs.get(name, 0) + samples
            own = sum(self for row, self in rows.items() if row == name or row.endswith("." + name))
            ours[name] = ours.get(name, 0) + own
        share, truth = (one["Crc32.of"] / sum(one.values()) for one in (ours, theirs))
        print(f"self share of Crc32.of: {share:.3f}, perf {truth:.3f} of {sum(theirs.values())} samples")
        assert max(rows, key=rows.get).endswith("Crc32.of")
        assert share == pytest.approx(truth, abs=0.05), (ours, theirs)

    attempts(check)
