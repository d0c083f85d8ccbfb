"""Runs setup.py for a Python that is not on this machine: cross_setup.py VERSION TRIPLET HEADERS
ARGUMENT...

VERSION: such as 3.13. TRIPLET: of the target, such as aarch64-linux-gnu. HEADERS: the directory
with Python.h. The environment names the compiler (CC, LDSHARED, CFLAGS) and the platform
(_PYTHON_HOST_PLATFORM).
"""

import runpy
import sys

import setuptools  # before distutils, which setuptools then provides

from distutils import sysconfig  # isort: skip
from distutils.command import build_ext  # isort: skip
from setuptools.command.bdist_wheel import bdist_wheel  # isort: skip

version, triplet, headers = sys.argv[1:4]
sys.argv = ["setup.py", *sys.argv[4:]]
digits = version.replace(".", "")
tag = f"cp{digits}"


def python_headers(plat_specific=False, prefix=None):
    return headers


class ForTarget(bdist_wheel):
    def get_tag(self):
        return tag, tag, "linux_" + triplet.partition("-")[0]


sysconfig.get_python_inc = python_headers
if hasattr(build_ext, "get_python_inc"):
    build_ext.get_python_inc = python_headers
own_setup = setuptools.setup


def setup(**options):
    options["cmdclass"] = {**options["cmdclass"], "bdist_wheel": ForTarget}
    return own_setup(**options)


setuptools.setup = setup
runpy.run_path("setup.py", run_name="__main__")
