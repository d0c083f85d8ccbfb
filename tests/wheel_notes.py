"""Checks that every probe can be found in an extension: python tests/wheel_notes.py [FILE]. The
default is the installed extension.

The exit status is 0 when the extension has probescope_info, and all notes with all their arguments.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Dict

from probescope.abi import PROBES


def notes(path: str) -> Dict[str, int]:
    """Returns the number of arguments of each probe, from the output of readelf."""
    text = subprocess.run(["readelf", "-n", path], check=True, capture_output=True, text=True).stdout
    found = re.findall(
        r"Provider: probescope\s+Name: (\w+)\s+Location: .*Semaphore: 0x(\w+)\s+Arguments: ?(.*)", text
    )
    assert all(int(semaphore, 16) for _, semaphore, _ in found)
    return {name: len(arguments.split()) for name, _, arguments in found}


def expected() -> Dict[str, int]:
    return {name: 6 if probe.more else len(probe.args) for name, probe in PROBES.items()}


def exports_info(path: str) -> bool:
    symbols = subprocess.run(
        ["readelf", "--dyn-syms", "-W", path], check=True, capture_output=True, text=True
    ).stdout
    return any(line.split()[-1:] == ["probescope_info"] for line in symbols.splitlines())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        library = sys.argv[1]
    else:
        from probescope import _native

        library = _native.__file__
    assert notes(library) == expected(), notes(library)
    assert exports_info(library)
    print(f"{library}: {len(PROBES)} probes")
