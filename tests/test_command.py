"""The command probescope: its output and its exit status, on real processes."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from probescope import _native
from probescope.abi import PROBES
from probescope.command import attach, columns, machine
from probescope.command.complaint import complaint
from probescope.command.errors import CommandError
from probescope.command.info import HEAD, PROBE, Info
from probescope.command.reader import Reader
from probescope.command.result import Result, moment_of
from probescope.command.tool import tool, way, weakness
from probescope.command.trace import KEEPER
from tracing import ROOT, Child, maps_library, python, wait_for

COMMAND = [sys.executable, "-m", "probescope"]

PROGRAM = """
import gate

def parse(value):
    return value + 1

def odd():
    pass

name = "\\x1b]0;owned\\x07"
odd.__code__ = odd.__code__.replace(co_name=name, co_qualname=name)

gate.on("function__stats", "stats__done")
gate.flushed()
for _ in range(1000):
    parse(1)
for _ in range(10):
    odd()
gate.flushed()
print("called", flush=True)
gate.off("function__stats")
gate.done()
"""

OWN = """
import probescope
shop = probescope.Provider("shop")
shop.probe("plain")
shop.probe("many", *[int] * 12)
assert shop.load(), shop.error
"""


def command(*arguments, before=()):
    """Runs the command. Returns its exit status, stdout and stderr."""
    if not before:
        ran = python("-m", "probescope", *arguments)
        return ran.returncode, ran.stdout, ran.stderr
    child = Child([*before, *COMMAND, *arguments], env=environment())
    return child.wait(), child.out, child.err


def test_info_reads_when_hooks_were_asked_for_and_in_where_the_library_says_so(tmp_path):
    def snapshot(*appended):
        name, *fields = b"stats__done", 1, 0, 4711, b"", 0
        offset = HEAD.size + 8 * len(appended)
        sizes = (offset + PROBE.size, 1, 4, 1, PROBE.size, offset)
        head = HEAD.pack(b"PSCOPE1", *sizes, b"ruby", b"3.1.2", b"0.1.0", 42, 3, 1 << 25, 0, 0, 9, 2, 77, b"")
        memory = tmp_path / "memory"
        memory.write_bytes(head + struct.pack(f"<{len(appended)}Q", *appended) + PROBE.pack(name, *fields))
        file = os.open(memory, os.O_RDONLY)
        try:
            return Info(file, 0).snapshot()
        finally:
            os.close(file)

    def times(info):
        assert info["probes"]["stats__done"]["state"] == "on"
        return info["asked_ns"], info["hooks_in_ns"]

    assert times(snapshot()) == (None, None)
    assert times(snapshot(5000, 7000)) == (5000, 7000)
    assert times(snapshot(5000, 0, 1)) == (5000, 0)


def test_an_interval_ends_where_its_rows_do_however_late_stats_done_fired():
    now, wall = time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.monotonic_ns()
    result = Result(7, "calls")
    result.add({"@began": {"7": now}, "@ended": {"7": now + 2_000_000_000}})
    assert interval_of(result) == [0, 2]
    result.add({"@first_cut": {"7": wall - 300_000_000}, "@last_cut": {"7": wall + 1_800_000_000}})
    assert interval_of(result) == [0, 2]  # an older library has another field at that offset
    result.known = {"cut": 1}
    assert interval_of(result) == [-0.3, 1.8]
    result.add({"@first_cut": {"7": wall - 3_600_000_000_000}})
    assert interval_of(result) == [0, 1.8]  # the machine was suspended in between


def interval_of(result):
    """Returns the interval in seconds from now."""
    return [round(moment.timestamp() - time.time(), 1) + 0 for moment in result.interval]


@pytest.mark.parametrize("ended, reported, expected", [(False, 0, 2), (True, 0, 5), (True, 7, 7)])
def test_events_are_lost_if_their_numbers_are_missing_or_bpftrace_reports_it(ended, reported, expected):
    """2 and 5 did not arrive. A process that has ended fired 6 to 8, too."""
    result = Result(1, "flow")
    flow = columns.of("flow")
    for number in (3, 1, 4):
        flow.json(f"< {number} 1 1 1 0 5 5 0\tShop.pay", result)
    flow.json("= 5 1 1000 2000 1000 10 1", result)
    result.add({"@number": {"1": 8}})
    result.lost_events = reported
    result.ended = ended
    assert result.lost()["events"] == expected


def test_two_clocks_are_compared_whenever_the_cpu_is_lost_between_them(monkeypatch):
    """GIVEN two clocks, the wall clock 1,000 s ahead, and a thread that at some readings loses its
    CPU for 30 ms before the reading.
    """
    spent = [50, 30_000_000, 50, 50, 50, 30_000_000, 50, 30_000_000, 50, 50, 30_000_000, 50, 50, 50, 50]
    clock = itertools.accumulate(spent)
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _: next(clock))
    monkeypatch.setattr(time, "time_ns", lambda: next(clock) + 1_000_000_000_000)
    assert moment_of(0, time.CLOCK_MONOTONIC).timestamp() == 1000


def test_a_library_that_is_mapped_and_has_not_begun_is_waited_for_and_then_told(children):
    source = (
        "import ctypes, signal, sys; ctypes.CDLL(sys.argv[1]); print('mapped', flush=True); signal.pause()"
    )
    children.append(Child([sys.executable, "-I", "-c", source, _native.__file__], env=environment()))
    children[-1].line("mapped")
    status, out, err = command("status", "-p", str(children[-1].pid))
    assert (status, out) == (1, "")
    assert "the process does not begin writing its probescope_info" in err


def test_a_question_that_ctrl_c_ends_leaves_no_answer_for_the_next_one():
    reader = Reader()
    place = reader.ask("find", os.getpid())
    os.kill(reader._pid, signal.SIGSTOP)  # the child answers after SIGCONT
    threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        reader.ask("flushes", place)
    os.kill(reader._pid, signal.SIGCONT)
    assert isinstance(reader.ask("status", place), dict)


def environment():
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "LANG": "C.UTF-8"}


@pytest.mark.smoke
def test_trace_runs_a_program_on_a_process_until_ctrl_c_and_leaves_it_as_it_was(bpf, program, children):
    started = program(PROGRAM)
    children.append(Child([*COMMAND, "trace", "calls", "-p", str(started.pid)], env=environment()))
    started.line("called")
    children[-1].process.send_signal(signal.SIGINT)
    assert children[-1].wait() == 0
    line = next(i for i, text in enumerate(PROGRAM.splitlines(), 1) if "def parse" in text)
    out = children[-1].out
    assert re.match(
        rf"calls of process {started.pid}, \d+\.\d s, \d+\.\d % CPU.*\nfrom \d\d:\d\d:\d\d\.\d+ to ", out
    ), out
    heading = r"^SELF +ELAPSED +CALLS +MEAN +MAX +RAISED +FUNCTION +DEFINED AT$"
    assert re.search(heading, out, re.MULTILINE), out
    assert re.search(
        rf"^( *\d\S* .?s){{2}} +1,000( +\d\S* .?s){{2}} +0  parse +(.*/)?app.py:{line}$", out, re.MULTILINE
    ), out
    # Text from a process is escaped.
    assert "owned" in out
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f]", out)
    started.line("report ")


# Prints more text than a pipe holds.
LARGE = """
interval:us:200 /@n < 2000/ {
  @n++;
  @row[@n, "a key of so many bytes that two thousand rows fill a pipe"] = @n;
  if (@n == 2000) { printf("ready\\n"); }
}
"""


def pauses(session):
    """Returns the keeper's pauses between two signals: `sleep` processes in its session."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = stat.read_text().split("(", 1)[1].rsplit(") ", 1)
        except OSError:  # the process has ended
            continue
        if name == "sleep" and int(fields.split()[3]) == session:
            found.add(stat.parent.name)
    return found


def test_a_tracer_that_takes_long_to_print_its_rows_is_left_to_do_so(bpf):
    pipe = subprocess.PIPE
    words = ["sh", "-c", KEEPER, "probescope", "bpftrace", "-e", LARGE]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, start_new_session=True) as keeper:
        while keeper.stdout.readline() != b"ready\n":
            assert keeper.poll() is None
        keeper.stdin.close()
        # Nobody reads the pipe, so bpftrace cannot end before the keeper would repeat the signal.
        seen = set()
        wait_for("the second pause", lambda: seen.update(pauses(keeper.pid)) or len(seen) == 2)
        text = keeper.stdout.read().decode()
        assert keeper.wait(60) == 0
    assert text.count("@row[") == 2000


HOSTILE_PROGRAM = """
import gate

def odd():
    pass

name = "a\\tb\\n@calls[1, y]: 9\\n" + "\\u00e9" + "long" * 50
odd.__code__ = odd.__code__.replace(co_name=name, co_qualname=name)
print("ready", flush=True)
while True:
    odd()
    gate.time.sleep(0.001)
"""


def test_trace_has_headings_for_what_comes_as_it_happens_and_bears_any_name(bpf, program):
    started = program(HOSTILE_PROGRAM)
    started.line("ready")
    status, out, err = command("trace", "stat", "-p", str(started.pid), "-d", "1")
    heading, *seconds = out.splitlines()
    assert (status, heading.split()[:3]) == (0, ["CPU", "LOOKING", "CALLS"]), err
    assert re.match(r"( *\d+\.\d %){2} +\d+ +0 +0 ns ", seconds[0]), out
    status, out, err = command("trace", "flow", "-p", str(started.pid), "-d", "1")
    assert (status, out.splitlines()[0].split()) == (0, ["ELAPSED", "SELF", "CALL"]), err
    assert re.search(r"^ +a\\tb\\n@calls\[1, y\]: 9\\nélonglong", out, re.MULTILINE), out
    assert re.search(
        r"^from [\d:.]+ to [\d:.]+: \d+\.\d % CPU, \d+\.\d % of it for looking$", out, re.MULTILINE
    ), out
    status, out, err = command("trace", "calls", "-p", str(started.pid), "-d", "1")
    assert re.search(r"^ *\d.* a\\tb\\n@calls\[1, y\]: 9\\nélonglong", out, re.MULTILINE), out


SWALLOWED_PROGRAM = """
import gate

class Short:
    def __getitem__(self, at):
        return [][at]

print("ready", flush=True)
while True:
    list(Short()) # the IndexError ends the loop, in C
    gate.time.sleep(0.001)
"""


# Calls an empty function as often as possible. Most of the CPU time is spent in hooks.
TRIFLE = """
import gate

def trifle():
    pass

print("ready", flush=True)
while True:
    for _ in range(1000):
        trifle()
"""


def test_trace_ends_early_when_looking_takes_more_than_max_overhead(bpf, program):
    started = program(TRIFLE)
    started.line("ready")  # until here, installing the hooks takes most of the CPU time
    words = ["trace", "calls", "-p", str(started.pid), "-d", "600", "--json", "--max-overhead"]
    status, out, err = command(*words, "5%")
    told = json.loads(out)
    assert status == 0, err
    assert re.search(
        r"ended after \d+\.\d s: looking took \d+\.\d % of the CPU time, more than --max-overhead 5%", err
    )
    assert told["looking_share"] > 0.05
    assert any("--max-overhead" in warning for warning in told["warnings"])
    assert sum(row["calls"] for row in told["rows"] if row["function"] == "trifle") > 1000
    words[5] = "2"
    status, out, err = command(*words, "1000")
    assert (status, "--max-overhead" in err) == (0, False)


def test_trace_exceptions_says_which_it_does_not_count(bpf, program):
    started = program(SWALLOWED_PROGRAM)
    started.line("ready")
    status, out, err = command("trace", "exceptions", "-p", str(started.pid), "-d", "1", "--json")
    told = json.loads(out)
    handled = "Python 3.12 and later and no Python code handled"
    what = handled if sys.version_info >= (3, 12) else "Python 3.11 and C code swallowed"
    not_covered = f"not in it: what was raised in {what}"
    assert (status, told["rows"], told["not_covered"]) == (0, [], [not_covered]), err
    out = command("trace", "exceptions", "-p", str(started.pid), "-d", "1")[1]
    assert f"\n  not in it: what was raised in {what}\n" in out


@pytest.mark.skipif(sys.version_info < (3, 12), reason="of another CPython: 3.12 and later")
def test_trace_says_which_tools_have_taken_every_id(bpf, program):
    started = program("import sys, gate\n"
                      "for i in range(6):\n  sys.monitoring.use_tool_id(i, f'taker {i}')\n"
                      "print('ready', flush=True)\nwhile True:\n  gate.time.sleep(0.01)\n")  # fmt: skip
    started.line("ready")
    status, out, err = command("trace", "exceptions", "-p", str(started.pid), "-d", "1")
    assert (status, out) == (1, "")
    taken = "tool ids are taken: taker 0, taker 1, taker 2, taker 3, taker 4, taker 5"
    assert err.count(f"exception__stats is refused: all sys.monitoring {taken}\n") == 1, err
    # An unknown figure is not shown as 0.
    status, out, err = command("trace", "stat", "-p", str(started.pid), "-d", "2", "--json")
    told = json.loads(out.splitlines()[-1])
    assert (status, told["raises"], told["backtrace_ns"], told["gc_ns"]) == (0, None, None, 0), err
    out = command("trace", "stat", "-p", str(started.pid), "-d", "2")[1].splitlines()[-1]
    assert re.match(r"( *\d+\.\d %){2} +- +- +- ", out), out
    status, out, err = command("trace", "calls", "-p", str(started.pid), "-d", "1")
    assert (status, err.count(f"function__stats is refused: all sys.monitoring {taken}\n")) == (1, 1), err
    assert "serves none of the program's probes" in err
    # doctor reports the same after the tracer has detached.
    said = (
        rf"exception__stats is off, and was refused .*: all sys.monitoring {taken} "
        r"-> end one of these tools there"
    )
    assert re.search(said, command("doctor", "-p", str(started.pid))[1])


def test_a_bpftrace_that_attaches_too_late_is_an_error_and_ends(bpf, program):
    started = program("import gate, time\nprint('runs', flush=True)\nwhile True: time.sleep(0.1)")
    started.line("runs")
    late = (
        "import sys; from probescope.command import main, trace; trace.ATTACH_SECONDS = 0; "
        "sys.exit(main.main(sys.argv[1:]))"
    )
    ran = python("-c", late, "trace", "calls", "-p", str(started.pid), "-d", "1")
    assert (ran.returncode, ran.stdout) == (1, ""), ran.stderr
    assert "bpftrace did not attach within 0 s" in ran.stderr
    assert f"probescope doctor -p {started.pid}" in ran.stderr
    is_left = ["pgrep", "-f", rf"bpftrace .*-p {started.pid} "]
    wait_for(
        "the end of bpftrace", lambda: subprocess.run(is_left, stdout=subprocess.DEVNULL).returncode == 1
    )


def test_trace_ends_after_its_time_and_its_bpftrace_with_it_however_it_ends(bpf, program, children):
    started = program("import gate\nwhile True:\n  gate.on('function__stats'); print('on', flush=True)\n"
                      "  gate.off('function__stats'); print('off', flush=True)\n")  # fmt: skip
    wait_for("the library", lambda: maps_library(started.pid))
    status, out, err = command("trace", "calls", "-p", str(started.pid), "-d", "1")
    assert (status, err.splitlines()[-1]) == (
        0,
        f"How often are functions called, and how long do they take? Process {started.pid}",
    )
    seconds, began, ended = re.search(r"process \d+, (\d+\.\d) s, .*\nfrom (\S+) to ([\d:.]+)", out).groups()
    assert float(seconds) >= 0.9
    began, ended = (datetime.datetime.strptime(moment, "%H:%M:%S.%f") for moment in (began, ended))
    assert (ended - began).total_seconds() % 86400 == pytest.approx(float(seconds), abs=0.2)
    children.append(Child([*COMMAND, "trace", "calls", "-p", str(started.pid)], env=environment()))
    wait_for("the second tracer", lambda: started.out.count("on\n") == 2)
    children[-1].process.kill()
    wait_for("the end of the second tracer", lambda: started.out.count("off\n") == 2)
    # The command also ends when the process ends.
    children.append(Child([*COMMAND, "trace", "calls", "-p", str(started.pid)], env=environment()))
    wait_for("the third tracer", lambda: started.out.count("on\n") == 3)
    started.process.kill()
    assert children[-1].wait() == 1
    # The hooks are installed before bpftrace has attached to all its probes.
    ended = f"nothing is known of process {started.pid}: no interval ended|process {started.pid} has ended"
    assert re.search(ended, children[-1].err), children[-1].err


@pytest.mark.smoke
def test_status_and_doctor_read_what_a_process_says_of_itself(bpf, program):
    started = program(f"import gate\n{OWN}\ngate.done()")
    started.line("report ")
    status, out, err = command("status", "-p", str(started.pid))
    assert (status, err) == (0, "")
    version = ".".join(map(str, sys.version_info[:3]))
    assert out.startswith(f"process {started.pid}: python {version}")
    assert all(
        re.search(rf"^{name} +(off|unsupported|degraded|refused) +no", out, re.MULTILINE) for name in PROBES
    )
    known = json.loads(command("status", "-p", str(started.pid), "--json")[1])
    process = known["process"]
    assert (process["pid"], process["runtime"], process["abi"]) == (started.pid, "python", 1)
    assert {"installed", "watcher"} <= set(process["flags"])
    assert process["deleted"] is False
    path = known["own"][1]["path"]
    assert known["own"] == [
        {"name": f"shop:{name}", "arguments": count, "listened": False, "path": path}
        for name, count in (("many", 12), ("plain", 0))
    ]
    assert re.search(rf"^shop:many +12 +no +{re.escape(path)}$", out, re.MULTILINE)

    status, out, _ = command("doctor", "-p", str(started.pid), "--json")
    rows = json.loads(out)["rows"]
    assert (status, [row for row in rows if row["state"] == "bad"]) == (0, [])
    assert f"process {started.pid}: python {version}" in out
    assert "its watcher looks for tracers" in out
    assert f"with {len(PROBES)} probes" in out
    assert "run-time probes (probescope.Provider) by its own library" in out
    assert ("line, exception__raise, exception__rescue: before Python 3.12 only with" in out) == (
        sys.version_info < (3, 12)
    )


def test_script_prints_the_programs(tmp_path):
    listed = command("script")[1]
    names = {path.stem for path in (ROOT / "providers").glob("*.bt")} | {"slow", "slow_by_request"}
    assert {line.split()[0] for line in listed.splitlines()} == names
    for name in ("exceptions", "exceptions.bt"):
        assert command("script", name) == (0, (ROOT / "providers/exceptions.bt").read_text(), "")


def test_runs_with_privilege_only_programs_of_root_and_none_of_the_callers_path(bpf, program, tmp_path):
    started = program("import gate\nwhile True:\n  gate.on('gc__done'); gate.off('gc__done')\n")
    wait_for("the library", lambda: maps_library(started.pid))
    seen = tmp_path / "seen"
    for name in ("bpftrace", "setpriv", "sh", "env", "setsid"):
        (tmp_path / name).write_text(f'#!/bin/sh\nid >>{seen}\nexec /usr/bin/{name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    before = ["/usr/bin/env", f"PATH={tmp_path}:{os.environ['PATH']}"]
    status, _, err = command("trace", "gc", "-p", str(started.pid), "-d", "1", before=before)
    assert (status, seen.exists()) == (0, False), err
    other = tmp_path / "other"
    shutil.copy("/bin/true", other)
    os.chown(other, 65534, 65534)
    mounted = f'mount --bind {other} "$(readlink -f /usr/bin/bpftrace)" && exec "$@"'
    for arguments in (["trace", "hot", "-p", str(started.pid)], ["doctor"]):
        status, out, err = command(*arguments, before=["unshare", "--mount", "sh", "-c", mounted, "sh"])
        assert status == 1
        assert "bpftrace belongs to user 65534" in out + err


def test_bpftrace_has_only_the_capabilities_that_tracing_needs(bpf, program, children):
    started = program(
        "import gate\nwhile True:\n  gate.on('gc__done'); print('on', flush=True); gate.off('gc__done')\n"
    )
    wait_for("the library", lambda: maps_library(started.pid))
    children.append(Child([*COMMAND, "trace", "gc", "-p", str(started.pid)], env=environment()))
    started.line("on")

    def status_of_bpftrace():
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_text().split("\0")
            except OSError:
                continue
            if words[0].endswith("bpftrace") and ["-p", str(started.pid)] == words[3:5]:
                return (path.parent / "status").read_text(), os.readlink(path.parent / "cwd")
        return None

    status, folder = wait_for("bpftrace", status_of_bpftrace)
    known = dict(line.split(":", 1) for line in status.splitlines())
    kept = 1 << 2 | 1 << 5 | 1 << 18 | 1 << 19 | 1 << 21 | 1 << 24 | 1 << 38 | 1 << 39 | 1 << 40
    assert [int(known[name], 16) & ~kept for name in ("CapPrm", "CapEff", "CapBnd", "CapInh")] == [0, 0, 0, 0]
    assert (known["NoNewPrivs"].strip(), known["Umask"].strip(), folder) == ("1", "0077", "/")


def test_only_root_may_change_a_program_and_each_folder_and_link_of_its_path(tmp_path):
    if os.geteuid():
        pytest.skip("needs root")
    assert weakness("/bin/sh") is None
    assert weakness("/usr/bin/../bin/./env") is None
    assert tool("no-such-tool") is None
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "bin").symlink_to("/bin")
    (tmp_path / "link").symlink_to(shared / "bin/sh")
    passed = way(str(tmp_path / "link"))
    assert {"/tmp", str(shared), str(shared / "bin"), "/bin", "/usr/bin"} <= set(passed)
    assert weakness(str(tmp_path / "link")) == "others than its owner may write to /tmp"
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        way(str(tmp_path / "a"))


@pytest.mark.parametrize(
    "told", json.loads((ROOT / "spec/fixtures/complaints.json").read_text()), ids=lambda told: told["of"]
)
def test_what_bpftrace_complains_of_has_a_sentence_of_ours_and_all_of_its_own(told):
    error = complaint(told["text"], "failed", "probescope doctor")
    kept = [
        line.strip() for line in told["text"].splitlines() if not line.startswith(("Attaching", "WARNING"))
    ]
    assert str(error).startswith(f"bpftrace failed: {told['means']}")
    assert str(error).endswith(f"; it says: {'; '.join(kept)}")
    assert error.next_step != "probescope doctor"


def test_attach_waits_for_no_file_system_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(attach, "CHILD_SECONDS", 0.2)
    assert not attach.in_child(lambda: time.sleep(60) is None)
    assert attach.in_child(lambda: True) and not attach.in_child(lambda: False)
    assert attach.readable_for(os.getpid(), "/etc/passwd")
    assert not attach.readable_for(os.getpid(), "/nowhere")


def test_a_command_that_was_stopped_and_then_killed_leaves_no_tracer():
    # Ctrl-Z stops the whole process group of the terminal. A stopped shell would not see the end of
    # its input.
    catches = "import os, signal, time; signal.signal(signal.SIGINT, lambda *_: os._exit(7)); time.sleep(600)"
    tracer = [sys.executable, "-c", catches]
    keeper = subprocess.Popen(
        ["/bin/sh", "-c", KEEPER, "probescope", *tracer], stdin=subprocess.PIPE, process_group=0
    )
    time.sleep(0.5)
    os.killpg(keeper.pid, signal.SIGTSTP)
    try:
        keeper.stdin.close()
        assert keeper.wait(20) == 7
    finally:
        if keeper.poll() is None:
            os.killpg(keeper.pid, signal.SIGCONT)


def test_what_sudo_complains_of_is_nothing_that_bpftrace_says():
    error = complaint(
        "sudo: a terminal is required to read the password\nsudo: a password is required\n", "failed", ""
    )
    assert str(error).startswith("cannot get the privilege to trace: sudo: a terminal is required")
    assert error.next_step == "run the command as root, or as a user who may use sudo"


def test_what_bpftrace_complains_of_is_shown_whole_where_nobody_knows_it():
    assert str(complaint("ERROR: of a new kind\nmore\n", "failed", "")) == (
        "bpftrace failed; it says: ERROR: of a new kind; more"
    )
    assert str(complaint("line " * 2000 + "\nand\n" * 30, "failed", "")).endswith("; and 11 more lines")


def test_what_threads_tell_is_refused_where_bpftrace_takes_threads_for_processes(monkeypatch):
    """GIVEN a PID namespace, and a bpftrace that swaps `pid` and `tid` in it."""
    slow = ["function__slow10ms", "stats__done"]
    rows = [["function__stats", "stats__done"], ["stack__frame", "stack__cpu", "stats__done"]]
    monkeypatch.setattr(machine.os, "readlink", lambda _: "pid:[4026532000]")
    for version in ("0.23", "0.23.2", "0.24.1"):
        for probes in rows:
            machine.check_numbers(machine.Bpftrace("/usr/bin/bpftrace", version), probes)
        with pytest.raises(CommandError, match="takes threads for processes"):
            machine.check_numbers(machine.Bpftrace("/usr/bin/bpftrace", version), slow)
    for version in ("0.17.0", "0.22.1", "0.24.2", "0.27"):
        machine.check_numbers(machine.Bpftrace("/usr/bin/bpftrace", version), slow)
    monkeypatch.setattr(machine.os, "readlink", lambda _: machine.INITIAL_PIDS)
    machine.check_numbers(machine.Bpftrace("/usr/bin/bpftrace", "0.23.2"), slow)


@pytest.mark.parametrize("arguments", [["trace", "hot", "-p", "1"], ["doctor"]])
def test_a_user_namespace_is_reported(bpf, arguments):
    if subprocess.run(["unshare", "--user", "--map-root-user", "true"], check=False).returncode:
        pytest.skip("no user namespaces here")
    status, out, err = command(*arguments, before=["unshare", "--user", "--map-root-user"])
    assert status == 1
    assert "this is a user namespace" in out + err


def test_doctor_tries_what_it_promises(bpf):
    assert "ok  the privilege to trace: bpftrace has run a program\n" in command("doctor")[1]
    # All capabilities are present, but the kernel forbids BPF.
    status, out, _ = command(
        "doctor", before=[sys.executable, str(ROOT / "spec/support/without_calls.py"), "bpf"]
    )
    assert status == 1
    assert re.search(
        r"^NO  bpftrace does not run a program: .*; it says: .* -> run it as root on the host", out, re.M
    )


def without_bpftrace():
    hidden = 'mount --bind /dev/null "$(command -v bpftrace)" && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", hidden, "sh"]


def test_says_what_is_missing_and_what_to_do(bpf, program, children):
    python_without = Child([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(1000)"])
    children.append(python_without)
    python_without.line("up")
    pid = str(python_without.pid)
    status, out, err = command("status", "-p", pid)
    assert (status, out) == (1, "")
    assert err.startswith(
        f"probescope: process {pid} does not have probescope loaded\n  try: start it with PROBESCOPE=1"
    )
    assert "`probescope doctor` says whether the library was built" in err
    assert command("trace", "hot", "-p", pid)[0] == 1
    assert command("doctor", "-p", pid)[0] == 1

    dead = Child(["true"])
    children.append(dead)
    dead.wait()
    assert command("status", "-p", str(dead.pid))[2].startswith(
        f"probescope: there is no process {dead.pid}\n  try: "
    )

    loaded = program(
        "import gate, threading\n"
        "threading.Thread(target=lambda: gate.done(id=threading.get_native_id())).start()\n"
    )
    thread = json.loads(loaded.line("report "))["id"]
    assert (
        f"thread of process {loaded.pid}\n  try: use -p {loaded.pid}"
        in command("status", "-p", str(thread))[2]
    )

    nothing = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--"]
    for arguments in (["trace", "hot", "-p", str(loaded.pid)], ["doctor"]):
        status, out, err = command(*arguments, before=nothing)
        assert (status, "root lacks CAP_SYS_ADMIN and CAP_SYS_PTRACE here" in out + err) == (1, True)
    for arguments in (["trace", "hot", "-p", str(loaded.pid)], ["doctor"]):
        status, out, err = command(*arguments, before=without_bpftrace())
        assert (status, "apt install bpftrace" in out + err) == (1, True)
        status, out, err = command(*arguments, before=["setarch", "--uname-2.6"])
        assert (status, "does not count the tracers of a probe" in out + err) == (1, True)


@pytest.mark.parametrize(
    "wrong",
    [
        "status",
        "status -p 0",
        "status -p ٣",
        "trace hot",
        "trace hot -p 1 -d 0",
        "trace hot -p 1 -d nan",
        "trace hot -p 1 --top -1",
        "trace hot -p 1 --max-overhead little",
        "trace hot -p 1 --max-overhead 0%",
        "trace raises -p 1 --json",
        "trace syscalls -p 1 --slower 1",
        "nope",
        "run",
        "run -m",
    ],
)
def test_a_wrong_command_line_is_exit_status_2_and_names_one_that_is_right(wrong):
    status, out, err = command(*wrong.split())
    assert (status, out) == (2, "")
    assert re.fullmatch(r"probescope: .+\n  try: probescope .+\n", err)


def test_every_command_has_help_with_examples():
    overview = command()[1]
    for name in ("run", "attach", "trace", "script", "doctor", "status"):
        assert re.search(rf"^ +{name} ", overview, re.MULTILINE)
        status, out, err = command(name, "--help")
        assert (status, err) == (0, "")
        assert f"probescope {name}" in out[out.index("examples:") :]
