"""Runs CPython's own tests with probes attached: does each test end as it does without probescope?

    sudo python bench/cpython.py [test_exceptions ...]

Runs each module twice with this interpreter, plain and with probes that a tracer has raised on the
library. Prints the tests that end otherwise and that cpython.toml does not list. A test that
differs runs once more, alone; a crash always counts. The build must include its tests (pyenv's do,
Debian's do not), and probescope must be importable: rake suite:python.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from attacher import Attacher  # noqa: E402
from probescope.abi import PROBES  # noqa: E402
from tracing import start_program  # noqa: E402

TIMEOUT_S = int(os.environ.get("PROBESCOPE_SUITE_SECONDS", "1800"))
LOGS = ROOT / "tmp/suite" / f"python-{sys.version.split()[0]}"
VERSION = "{}.{}".format(*sys.version_info)
# This is a package from 3.12 on.
MULTIPROCESSING = "test_multiprocessing_fork" + (".test_processes" if sys.version_info >= (3, 12) else "")
# These modules use the parts of the VM that have hooks. They run with every probe.
WITH_EVERY_PROBE = ["test_exceptions", "test_generators", "test_coroutines", "test_asyncgen",
                    "test_contextlib", "test_traceback", "test_threading", "test_sys_settrace",
                    "test_sys_setprofile", "test_monitoring", "test_gc", "test_fork1", "test_signal",
                    "test_asyncio", MULTIPROCESSING + ".WithProcessesTestProcess"]  # fmt: skip
# The other modules run without probes that fire at each event: with those, they would take longer
# than their own limits.
MODULES = """
    test_abc test_array test_ast test_atexit test_augassign test_baseexception test_bdb test_binop
    test_bool test_buffer test_builtin test_bytes test_call test_capi test_class test_code
    test_codecs test_codeop test_collections test_compare test_compile test_complex test_context
    test_contextlib_async test_copy test_cprofile test_dataclasses test_decorators test_defaultdict
    test_deque test_descr test_dict test_dictcomps test_dictviews test_dis test_doctest test_dynamic
    test_dynamicclassattribute test_enum test_enumerate test_except_star test_exception_group
    test_exception_hierarchy test_exception_variations test_extcall test_faulthandler
    test_finalization test_float test_frame test_fstring test_funcattrs test_functools
    test_generator_stop test_genericalias test_genexps test_global test_grammar test_heapq
    test_import test_index test_inspect test_int test_io test_isinstance test_iter test_iterlen
    test_itertools test_json test_keywordonlyarg test_linecache test_list test_listcomps
    test_logging test_long test_marshal test_memoryview test_metaclass test_module
    test_named_expressions test_opcache test_operator test_ordered_dict test_patma test_peepholer
    test_pickle test_positional_only_arg test_profile test_property test_queue test_raise test_range
    test_re test_richcmp test_runpy test_scope test_select test_selectors test_set test_setcomps
    test_slice test_sort test_str test_struct test_structseq test_subclassinit test_subprocess
    test_super test_symtable test_syntax test_sys test_thread test_threading_local
    test_threadsignals test_time test_timeout test_trace test_tracemalloc test_tuple test_type_cache
    test_type_params test_types test_typing test_unary test_unittest test_unpack test_unpack_ex
    test_userdict test_warnings test_weakref test_weakset test_with test_yield_from test_zipimport
""".split()
EACH_EVENT = {"line", "function__entry", "function__return", "object__alloc", "sample", "sample__frame"}
# These two are not tests. A test that differs may pass when it is repeated; these may not.
ENDING, CRASHES = "(end)", "(crashes)"

Outcomes = "dict[str, str]"

# test_monitoring needs the tool ids 2, 3 and 4, and no events but its own. So probescope's tools
# and events are hidden from it.
MONITORING = """
import sys, unittest
from test import test_monitoring as tests
monitoring = sys.monitoring
ours = sum(1 << id for id in range(6) if monitoring.get_tool(id) == "probescope")
free = [id for id in (2, 3, 4, 5) if not ours >> id & 1]
tests.TEST_TOOL, tests.TEST_TOOL2, tests.TEST_TOOL3 = free[:3]
all_events, get_events = monitoring._all_events, monitoring.get_events
monitoring.get_events = lambda id: 0 if ours >> id & 1 else get_events(id)
monitoring._all_events = lambda: {
    name: tools & ~ours for name, tools in all_events().items() if tools & ~ours
}
unittest.main(tests, argv=["test", "-v", *sys.argv[1:]])
"""


def allowed() -> "list[str]":
    """Returns the patterns in cpython.toml for this version."""
    with (ROOT / "bench/cpython.toml").open("rb") as file:
        entries = tomllib.load(file).get("differ", [])
    return [
        pattern for one in entries if VERSION in one.get("versions", [VERSION]) for pattern in one["tests"]
    ]


def command_of(module: str, tests: "list[str]") -> "list[str]":
    if module == "test_monitoring":
        return [sys.executable, "-c", MONITORING, *(test.removeprefix("test_monitoring.") for test in tests)]
    return [sys.executable, "-m", "unittest", "-v", *(f"test.{name}" for name in tests or [module])]


def parsed(text: str) -> Outcomes:
    """Returns {"test_gc.GCTests.test_list": "ok", ...}.

    A test's text is "test_x (test.module.Class.test_x)", perhaps a line of documentation, " ... ",
    perhaps its output, "ok".
    """
    parts = re.split(r"^(\w+) \((?:test\.)?([\w.]+)\)(?:\n[^\n]*)? \.\.\. ", text, flags=re.MULTILINE)
    end = re.compile(r"(ok|FAIL|ERROR|skipped|expected failure|unexpected success)(?: .*)?$", re.MULTILINE)
    found = {}
    for name, place, rest in zip(parts[1::3], parts[2::3], parts[3::3]):
        outcome = end.search(rest.partition("\n=====")[0])
        if outcome:
            found[place if place.endswith("." + name) else f"{place}.{name}"] = outcome[1]
    return found


def run(module: str, traced: bool, tests: "list[str] | None" = None) -> Outcomes:
    """Runs a module, or these tests of it. A runner that dies leaves out the remaining tests."""
    paths = [ROOT / "tests/listening", ROOT / "tests", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "TRACED": "1" if traced else ""}
    output = LOGS / f"{module}.{'attached' if traced else 'plain'}{'.again' if tests else ''}.log"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        with output.open("wb") as file:
            # It runs in its own session, without a terminal.
            child = subprocess.Popen(
                command_of(module, tests or []),
                env=env,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            status = child.wait(TIMEOUT_S)
            ending = (
                signal.Signals(-status).name
                if status < 0
                else ("ended" if status in (0, 1, 5) else str(status))
            )
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            ending = f"not done after {TIMEOUT_S} s"
    text = output.read_text(errors="replace")
    crashes = len(re.findall(r"^Fatal Python error|Segmentation fault", text, re.MULTILINE))
    return {**parsed(text), ENDING: ending, CRASHES: str(crashes)}


def compared(plain: Outcomes, traced: Outcomes) -> "dict[str, tuple[str, str]]":
    tests = {**plain, **traced}
    ends = {test: (plain.get(test, "missing"), traced.get(test, "missing")) for test in tests}
    return {test: (before, after) for test, (before, after) in ends.items() if before != after}


def repeated(module: str, differ: "dict[str, tuple[str, str]]") -> "dict[str, tuple[str, str]]":
    """Returns the tests that differ again."""
    tests = [test for test in differ if test not in (ENDING, CRASHES)]
    if not tests:
        return differ
    plain, traced = run(module, False, tests), run(module, True, tests)
    again = compared(plain, traced)
    # A test that cannot run by its name is in neither result.
    gone = {test for test in tests if test in plain and test not in again}
    for test in sorted(gone):
        print(f"passed when repeated: suite:python: {test}")
    crashed = {end: again[end] for end in (ENDING, CRASHES) if end in again}
    return {**{test: ends for test, ends in differ.items() if test not in gone}, **crashed}


def differing(module: str, totals: "dict[str, int]") -> bool:
    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        plain, traced = pool.map(lambda attached: run(module, attached), (False, True))
    patterns = allowed()
    count = len(plain) - 2
    if not count:
        print(f"skipped: {module} of CPython {VERSION} has no test that unittest can run here")
        return False
    differ = compared(plain, traced)
    names = {test: f"{module}.{test}" if test in (ENDING, CRASHES) else test for test in differ}
    rest = {
        test: ends
        for test, ends in differ.items()
        if not any(fnmatchcase(names[test], one) for one in patterns)
    }
    may, found = len(differ) - len(rest), len(rest)
    others = f", {may} may" if may else ""
    print(f"{module}: {count} tests, {found} differ{others} ({time.monotonic() - began:.0f} s)", flush=True)
    rest = repeated(module, rest)
    for test, ends in rest.items():
        print(f"  differs: {test}: {ends[0]}, attached {ends[1]}", flush=True)
    passed = max(found - len(rest), 0)
    for name, number in zip(totals, (count, 1, len(rest), may, passed)):
        totals[name] += number
    return bool(rest)


def compare_with(probes: "list[str]", modules: "list[str]", totals: "dict[str, int]") -> "list[str]":
    """Returns the modules that differ while these probes are raised."""
    found = []
    with tempfile.TemporaryDirectory() as directory:
        keeper = start_program("import gate\ngate.done()\n", Path(directory))
        keeper.line("report ")
        tracer = Attacher(keeper.pid, *probes, by_path=True).attached()
        try:
            for module in modules:
                if find_spec("test." + module.split(".")[0]) is None:
                    print(f"{module}: not in this version")
                elif differing(module, totals):
                    found.append(module)
        finally:
            tracer.kill()
            keeper.kill()
    return found


def main() -> int:
    if find_spec("test.test_gc") is None:
        print(f"skipped: CPython {VERSION} without its tests")
        return 0
    LOGS.mkdir(parents=True, exist_ok=True)
    # Some tests interrupt themselves. Background jobs of a shell and their children ignore SIGINT,
    # and these tests would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chosen = sys.argv[1:] or [*WITH_EVERY_PROBE, *MODULES]
    totals = dict.fromkeys(("tests", "modules", "differ", "may", "repeated"), 0)
    every = [module for module in chosen if module in WITH_EVERY_PROBE]
    others = [module for module in chosen if module not in WITH_EVERY_PROBE]
    failed = compare_with(list(PROBES), every, totals) if every else []
    if others:
        failed += compare_with([probe for probe in PROBES if probe not in EACH_EVENT], others, totals)
    print("suite: {tests} tests in {modules} modules: {differ} differ, {may} others may, "
          "{repeated} passed when repeated".format(**totals))  # fmt: skip
    if failed:
        print(f"FAILED: suite:python: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
