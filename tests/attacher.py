"""Attaches tracers with the C program of the specs (spec/support/attacher.c). It takes
milliseconds, where bpftrace takes half a second.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import re
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional

from tracing import ROOT, Child, wait_for

SOURCE = ROOT / "spec/support/attacher.c"
BINARY = ROOT / "tmp/attacher"


def _binary() -> Path:
    """Compiles the program when it is missing or older than its source."""
    if not BINARY.exists() or BINARY.stat().st_mtime < SOURCE.stat().st_mtime:
        BINARY.parent.mkdir(exist_ok=True)
        command = ["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(BINARY), str(SOURCE)]
        subprocess.run(command, check=True)
    return BINARY


def library() -> str:
    """Returns the path of the extension that this Python loads."""
    import probescope

    package = Path(probescope.__file__).parent
    found = [package / f"_native{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES]
    return str(next(path for path in found if path.exists()))


def _mapped(pid: Any, library: str) -> int:
    """Returns the address at which a process maps the first byte of a file."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith(library) and int(line.split()[2], 16) == 0:
            return int(line.split("-")[0], 16)
    raise AssertionError(f"{pid} does not map {library}")


def info_address(pid: int, library: str) -> int:
    """Returns the address of probescope_info in another process. Its distance from the start of the
    library is the same as in this process.
    """
    here = ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(library), "probescope_info"))
    return here - _mapped("self", library) + _mapped(pid, library)


class Attacher(Child):
    """A tracer that stays attached until finish().

    cycles: attaches and detaches this many times instead. await_hooks: in each cycle, waits until
    the hooks are installed and until they are removed. by_path: attaches to every process that maps
    the library, including later ones.
    """

    def __init__(self, pid: int, *probes: str, cycles: Optional[int] = None, await_hooks: bool = False,
                 by_path: bool = False) -> None:  # fmt: skip
        path = library()
        options = ["--cycles", str(cycles)] if cycles else []
        options += ["--info", f"{info_address(pid, path):#x}"] if await_hooks else []
        options += ["--by-path"] if by_path else []
        super().__init__([str(_binary()), *options, str(pid), path, *probes], stdin=subprocess.PIPE)

    def attached(self, within: float = 60) -> "Attacher":
        """Waits until all semaphores are raised."""
        self.line("attached ", within)
        return self

    def tell(self, step: str, within: float = 60) -> None:
        """Only without cycles. step: "attach" or "detach". Returns when the step is done."""
        done = self.out.count(f"{step}ed")
        self.process.stdin.write(f"{step}\n".encode())
        self.process.stdin.flush()
        wait_for(f"{step}ed", lambda: self.out.count(f"{step}ed") > done, within)

    def finish(self, within: float = 60) -> List[Dict[str, float]]:
        """Ends the attacher.

        Returns the figures of each cycle in milliseconds: {"attach_ms": 8.1, "hooked_ms": 31.0,
        ...}.
        """
        self.process.stdin.close()
        assert self.wait(within) == 0, str(self)
        lines = re.findall(r"^cycle (.*)$", self.out, re.MULTILINE)
        return [{name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", line)} for line in lines]
