from __future__ import annotations

import datetime
import fcntl
import json
import os
import shutil
import subprocess
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest
from attacher import Attacher
from probescope.command import machine
from probescope.command.errors import CommandError
from tracing import ROOT, Child, Run, maps_library, start_program, start_tracer, text_of, wait_for


def _why_no_bpf() -> Optional[str]:
    if os.geteuid() != 0:
        return "not root"
    if not shutil.which("bpftrace"):
        return "no bpftrace in PATH"
    ran = subprocess.run(["bpftrace", "-e", "BEGIN { exit() }"], capture_output=True, text=True, check=False)
    return None if ran.returncode == 0 else f"bpftrace does not run: {ran.stderr.strip()}"


WHY_NO_BPF = _why_no_bpf()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "bpf: needs BPF (the fixture `bpf` sets it); not in `bin/test fast`")
    config.addinivalue_line("markers", "slow: more than a second without BPF; not in `bin/test fast`")
    config.addinivalue_line("markers", "full(reason): the gate leaves it to .ci/full")


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    for item in items:
        if "bpf" in getattr(item, "fixturenames", ()):
            item.add_marker("bpf")
        full = item.get_closest_marker("full")
        if full and os.environ.get("PROBESCOPE_GATE"):
            item.add_marker(pytest.mark.skip(reason=f"of .ci/full: {full.args[0]}"))


def _forbid_skip(report: Any) -> None:
    """In the gate, fails a skipped test if .ci/skips.json does not list its reason, or if that entry
    has expired. spec/support/skips.rb does the same for RSpec.
    """
    if not (report.skipped and os.environ.get("PROBESCOPE_GATE")):
        return
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    today = datetime.date.today().isoformat()
    entries = json.loads((ROOT / ".ci/skips.json").read_text())
    if not any(entry["what"] in reason and today <= entry["until"] for entry in entries):
        report.outcome = "failed"
        report.longrepr = f"skipped in the gate, and .ci/skips.json does not list it: {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    outcome = yield
    _forbid_skip(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    outcome = yield
    _forbid_skip(outcome.get_result())


@pytest.fixture(autouse=True)
def turn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Makes each test wait while another job on this machine must run alone: `alone` in
    spec/support/turns.rb, which does the same for RSpec, and has the reason for the mark "valgrind".

    A process that waits for "room" holds "next", so no later process enters "room" first.
    """
    directory = os.environ.get("PROBESCOPE_TURNS")
    if not directory:
        yield
        return
    with (
        open(os.path.join(directory, "valgrind"), "w") as valgrind,
        open(os.path.join(directory, "next"), "w") as door,
        open(os.path.join(directory, "room"), "w") as room,
    ):
        if request.node.get_closest_marker("valgrind"):
            fcntl.flock(valgrind, fcntl.LOCK_EX)
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield


@pytest.fixture
def bpf() -> None:
    """Requires BPF. Without BPF the test fails in CI, and is skipped elsewhere."""
    if WHY_NO_BPF:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"needs BPF: {WHY_NO_BPF}")


@pytest.fixture
def switches(bpf: None) -> None:
    """Requires a bpftrace with which the wheel's command sees all switches of a process."""
    try:
        machine.check_elsewhere(machine.bpftrace(), os.getpid(), "offcpu", ["sched:sched_switch"])
    except CommandError as error:
        pytest.skip(str(error))


@pytest.fixture
def children() -> Iterator[List[Child]]:
    """Processes to kill after the test. Their output is printed, and pytest shows it on failure."""
    started: List[Child] = []
    yield started
    for child in reversed(started):
        child.kill()
        print(child)


@pytest.fixture
def program(tmp_path: Any, children: List[Child]) -> Callable[..., Child]:
    """program(source, env={}, options=[]): starts a program without a tracer."""

    def start(source: str, **options: Any) -> Child:
        children.append(start_program(source, tmp_path, **options))
        return children[-1]

    return start


@pytest.fixture
def attach(bpf: None, children: List[Child]) -> Callable[..., Attacher]:
    """attach(child, probe, ..., cycles=None, await_hooks=False, by_path=False): starts a tracer
    that raises semaphores but reads no events.
    """

    def start(target: Child, *probes: str, **options: Any) -> Attacher:
        wait_for(
            f"the library in {target}", lambda: maps_library(target.pid) or target.process.poll() is not None
        )
        children.append(Attacher(target.pid, *probes, **options))
        return children[-1]

    return start


@pytest.fixture
def trace(
    bpf: None, tmp_path: Any, children: List[Child], program: Callable[..., Child]
) -> Callable[..., Run]:
    """trace(source, {probe: [field, ...]}, attach=[probe, ...], finish=True): starts a program and
    a bpftrace that traces it.

    attach: probes that bpftrace attaches to without printing. With finish=False, both keep running.
    """

    def start(
        source: str, fields: Dict[str, List[str]], attach: Any = (), finish: bool = True, **options: Any
    ) -> Run:
        fields = {"stats__done": ["sequence", "rows", "dropped"], **fields}
        started = program(
            source, **{**options, "env": {"GATE_ALSO": "stats__done", **(options.get("env") or {})}}
        )
        wait_for(
            f"the library in {started}",
            lambda: maps_library(started.pid) or started.process.poll() is not None,
        )
        raised = [f"usdt:*:probescope:{probe} {{ @{probe} = count(); }}" for probe in attach]
        children.append(start_tracer(started.pid, "\n".join([text_of(fields), *raised])))
        run = Run(started, children[-1], fields, tmp_path)
        return run.finish() if finish else run

    return start
