"""Builds the extension from ext/python, ext/core and ext/libstapsdt. Everything else is in pyproject.toml."""

import os
import platform
import re
import shutil
import sys
import sysconfig
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

if sys.version_info < (3, 11):
    sys.exit(f"probescope needs Python 3.11 or later, and {sys.executable} is {platform.python_version()}")

VERSION = re.search(r'VERSION = "(.+)"', Path("lib/probescope/version.rb").read_text())[1]
# No red zone: whatever a kernel puts in the place of a probe may push onto the stack
# (docs/decisions/031-one-nop.md). No LTO: it could move a site.
FLAGS = ["-std=gnu11", "-fvisibility=hidden", "-fno-lto", "-fno-strict-aliasing", "-Wall", "-Wextra",
         "-Wno-unused-parameter", "-Wno-missing-field-initializers",
         "-Werror=implicit-function-declaration"]  # fmt: skip
# Not platform.machine(): rake release:build compiles for a CPU that this machine cannot run.
MACHINE = sysconfig.get_platform().rpartition("-")[2]
if MACHINE == "x86_64":
    FLAGS.append("-mno-red-zone")
NO_COMPILER = "no C compiler works, or Python's headers are missing (on Debian: apt install gcc python3-dev)"

# PROBESCOPE_STAPSDT_DIR=/opt/libstapsdt pip install .: run-time probes by that libstapsdt.so and
# not by our own.
STAPSDT = os.environ.get("PROBESCOPE_STAPSDT_DIR") and os.path.abspath(os.environ["PROBESCOPE_STAPSDT_DIR"])
SOURCES = glob("ext/python/*.c") + ([] if STAPSDT else glob("ext/libstapsdt/*.c"))
SOURCES += [path for path in glob("ext/core/*/*.c") if not path.startswith("ext/core/test/")]

native = Extension(
    "probescope._native",
    sources=sorted(SOURCES),
    depends=sorted(glob("ext/python/*.h") + glob("ext/core/*/*.h") + glob("ext/libstapsdt/*.h")),
    include_dirs=[f"{STAPSDT}/include" if STAPSDT else "ext/libstapsdt", "ext/core", "ext/python"],
    # pthread, rt, dl: parts of libc since GLIBC 2.34; before, libraries of their own, which the
    # process need not have.
    libraries=(["stapsdt"] if STAPSDT else []) + (["pthread", "rt", "dl"] if sys.platform == "linux" else []),
    library_dirs=[f"{STAPSDT}/lib"] if STAPSDT else [],
    runtime_library_dirs=[f"{STAPSDT}/lib"] if STAPSDT else [],
    define_macros=[("_GNU_SOURCE", "1"), ("PROBESCOPE_VERSION", f'"{VERSION}"')]
    + ([("PS_OTHER_STAPSDT", "1")] if STAPSDT else []),
    extra_compile_args=FLAGS,
)


def why_not():
    """Why probes cannot work on this system at all; None when they can."""
    if platform.python_implementation() != "CPython":
        return f"{platform.python_implementation()} has no C API of CPython"
    if sys.platform != "linux":
        return f"the operating system is {sys.platform}, and probes need Linux"
    if "musl" in (sysconfig.get_config_var("SOABI") or ""):
        return "the C library is musl, and nobody has run probes on it"
    if MACHINE not in ("x86_64", "aarch64"):
        return f"the CPU is {MACHINE}, and probes are written for x86-64 and aarch64"
    if STAPSDT and not os.path.exists(f"{STAPSDT}/lib/libstapsdt.so"):
        return f"no libstapsdt.so in {STAPSDT}/lib (PROBESCOPE_STAPSDT_DIR)"
    return None


class BuildExtension(build_ext):
    """Installing the package must never fail because of the extension: where there can be none it
    is written down why.
    """

    def run(self):
        reason = why_not()
        if not reason:
            try:
                super().run()
            except Exception as error:  # of several kinds, which differ from one setuptools to the next
                # Without all of the compiler's options, which are a screenful.
                told = re.sub(r"Command '\['([^']+)'.*\]' ", r"\1 ", str(error))
                reason = f"{NO_COMPILER}: {told}"
        folder = "python/probescope" if self.inplace else os.path.join(self.build_lib, "probescope")
        note = Path(folder, "unavailable.txt")
        if reason:
            print(f"probescope: {reason}: installing without probes", file=sys.stderr)
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(f"{reason}\n")
        elif note.exists():
            note.unlink()

    def get_outputs(self):
        return [path for path in super().get_outputs() if os.path.exists(path)]


class BuildPython(build_py):
    """Adds the bpftrace programs and the page, which belong to both languages, and the .pth file, whose
    place is beside the package.
    """

    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):
            return
        programs = Path(self.build_lib, "probescope", "programs")
        shutil.rmtree(programs, ignore_errors=True)
        programs.mkdir(parents=True)
        for path in glob("providers/*.bt"):
            self.copy_file(path, str(programs))
        self.copy_file("page/page.gen.html", str(Path(self.build_lib, "probescope", "profile")))
        self.copy_file("python/probescope.pth", self.build_lib)


setup(
    version=VERSION,
    package_dir={"": "python"},
    ext_modules=[native],
    cmdclass={"build_ext": BuildExtension, "build_py": BuildPython},
)
