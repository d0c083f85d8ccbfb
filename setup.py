"""Builds the extension from ext/python and ext/core. Everything else is in pyproject.toml."""

import platform
import re
import sys
from glob import glob
from pathlib import Path

from setuptools import Extension, setup

VERSION = re.search(r'VERSION = "(.+)"', Path("lib/probescope/version.rb").read_text())[1]
# No red zone: whatever a kernel puts in the place of a probe may push onto the stack (docs/decisions/031-one-nop.md). No LTO:
# it could move a site.
FLAGS = ["-std=gnu11", "-fvisibility=hidden", "-fno-lto", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Wno-unused-parameter",
         "-Wno-missing-field-initializers"]  # fmt: skip
if platform.machine() == "x86_64":
    FLAGS.append("-mno-red-zone")

native = Extension(
    "probescope._native",
    sources=sorted(glob("ext/python/*.c") + glob("ext/core/*.c")),
    depends=sorted(glob("ext/python/*.h") + glob("ext/core/*.h")),
    include_dirs=["ext/core", "ext/python"],
    define_macros=[("_GNU_SOURCE", "1"), ("PROBESCOPE_VERSION", f'"{VERSION}"')],
    extra_compile_args=FLAGS,
    # Where it cannot be built the package installs all the same, and does nothing.
    optional=True,
)

setup(
    version=VERSION,
    package_dir={"": "python"},
    ext_modules=[native] if sys.platform == "linux" and platform.python_implementation() == "CPython" else [],
)
