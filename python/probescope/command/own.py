"""The probes that an application has defined while it runs (Provider, latency), from the libraries that it maps for them."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Optional

from probescope.command.elf import Elf
from probescope.command.errors import CommandError
from probescope.command.target import Mapped, Target, files

# As ext/core/provider_file.c names them.
DELETED = " (deleted)"
LIBRARY = re.compile(rf"/probescope(-\d+)?/[^/]+-[0-9a-f]{{16}}(-\d+)?\.so({re.escape(DELETED)})?$|^/memfd:libstapsdt:")


def own_probes(target: Target) -> List[Dict[str, Any]]:
    """[{name: "shop:checkout", arguments: 2, listened, path}, ...], by name.

    listened: whether a tracer listens to it now, None where nothing says so. path: the file by which every process with the same
    provider is reached, or None.
    """
    try:
        libraries = [file for file in files(target.pid) if LIBRARY.search(file.path)]
    except OSError:  # the process has ended
        return []
    return sorted((probe for file in libraries for probe in _in(file, target)), key=lambda probe: str(probe["name"]))


def _in(file: Mapped, target: Target) -> List[Dict[str, Any]]:
    path = None if file.path.endswith(DELETED) else file.path
    try:
        descriptor = file.open()
    except OSError:
        return []
    try:
        elf = Elf(descriptor)
        return [
            {
                "name": f"{probe.provider}:{probe.name}",
                "arguments": probe.arguments,
                "listened": _listened(target, probe.semaphore and probe.semaphore + elf.bias(file.start)),
                "path": path,
            }
            for probe in elf.probes()
        ]
    except (OSError, ValueError):  # it is no such file, or was cut
        return []
    finally:
        os.close(descriptor)


def _listened(target: Target, semaphore: int) -> Optional[bool]:
    try:
        return target.info.listened(semaphore) if semaphore else None
    except (OSError, OverflowError, CommandError):
        return None
