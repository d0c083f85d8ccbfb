"""CPython's own tests with everything attached: does each end as it does without us?

    sudo python bench/cpython.py [test_exceptions ...]

Runs each module twice with this interpreter, plain and with every probe raised by a tracer on the library, and prints the tests
that end otherwise. The build has to ship its tests (pyenv's do, Debian's do not), and probescope has to be importable.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from attacher import Attacher  # noqa: E402
from probescope.abi import PROBES  # noqa: E402
from tracing import start_program  # noqa: E402

TIMEOUT_S = 1800
# A package from 3.12 on.
MULTIPROCESSING = "test_multiprocessing_fork" + (".test_processes" if sys.version_info >= (3, 12) else "")
MODULES = ["test_exceptions", "test_generators", "test_coroutines", "test_asyncgen", "test_contextlib", "test_traceback",
           "test_threading", "test_sys_settrace", "test_sys_setprofile", "test_monitoring", "test_gc", "test_fork1", "test_signal",
           "test_asyncio", MULTIPROCESSING + ".WithProcessesTestProcess"]  # fmt: skip


# test_monitoring wants the tool ids 2, 3 and 4 for itself and no events but its own: ours are left out of what it sees.
MONITORING = """
import sys, unittest
from test import test_monitoring as tests
monitoring = sys.monitoring
ours = sum(1 << id for id in range(6) if monitoring.get_tool(id) == "probescope")
free = [id for id in (2, 3, 4, 5) if not ours >> id & 1]
tests.TEST_TOOL, tests.TEST_TOOL2, tests.TEST_TOOL3 = free[:3]
all_events, get_events = monitoring._all_events, monitoring.get_events
monitoring.get_events = lambda id: 0 if ours >> id & 1 else get_events(id)
monitoring._all_events = lambda: {name: tools & ~ours for name, tools in all_events().items() if tools & ~ours}
unittest.main(tests, argv=["test", "-v"])
"""


def outcomes(module: str, traced: bool) -> "tuple[dict[str, str], str]":
    """{test: "ok", "FAIL", ...} of a module, and the end of what it wrote."""
    paths = [ROOT / "tests/listening", ROOT / "tests", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "TRACED": "1" if traced else ""}
    command = [sys.executable, "-m", "unittest", "-v", f"test.{module}"]
    if module == "test_monitoring":
        command = [sys.executable, "-c", MONITORING]
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory, "output")
        with output.open("wb") as file:
            # In a group of its own, with no terminal.
            child = subprocess.Popen(command, env=env, cwd=directory, stdin=subprocess.DEVNULL, stdout=file,
                                     stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        try:
            status = child.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            status = child.wait()
        text = output.read_text(errors="replace")
    # "test_x (test.module.Class.test_x)", perhaps a line of documentation, perhaps what the test wrote, "... ok"
    found = re.findall(r"^(test\w*) \(([\w.]+)\)(?:\n[^\n]*)? \.\.\. (?:[^\n]*?)(ok|FAIL|ERROR|skipped|expected failure)",
                       text, re.MULTILINE)  # fmt: skip
    return {f"{place}.{name}": outcome for name, place, outcome in found}, f"status {status}\n{text[-1500:]}"


def main() -> int:
    failed = 0
    # Some tests interrupt themselves and would wait for ever: what a shell starts in the background ignores that, and so its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as directory:
        keeper = start_program("import gate\ngate.done()\n", Path(directory))
        keeper.line("report ")
        tracer = Attacher(keeper.pid, *PROBES, by_path=True).attached()
        try:
            for module in sys.argv[1:] or MODULES:
                if not find_spec("test." + module.split(".")[0]):
                    print(f"{module}: not in this version")
                    continue
                began = time.monotonic()
                (plain, _), (traced, said) = outcomes(module, False), outcomes(module, True)
                differ = {
                    test: (end, traced.get(test, "missing")) for test, end in plain.items() if traced.get(test) != end
                }
                failed += bool(differ) or not plain
                print(
                    f"{module}: {len(plain)} tests, {len(differ)} differ, {time.monotonic() - began:.0f} s", flush=True
                )
                for test, ends in differ.items():
                    print(f"  {test}: {ends[0]}, attached {ends[1]}")
                if not plain or len(traced) < len(plain):
                    print(said)
        finally:
            tracer.kill()
            keeper.kill()
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
