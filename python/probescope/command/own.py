"""The probes that an application has defined while it runs (Provider, latency). They are read from
the libraries that it maps for them.
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, List, Optional

from probescope.command import bounds
from probescope.command.elf import Elf, Malformed
from probescope.command.mappings import DELETED, Mapped, files

# The file names that ext/libstapsdt/provider_file.c makes.
LIBRARY = re.compile(
    rb"/probescope(-\d+)?/[^/]+-[0-9a-f]{16}(-\d+)?\.so(%s)?$|^/memfd:libstapsdt:" % re.escape(DELETED)
)

Listened = Callable[[int], Optional[bool]]


def own_probes(pid: int, listened: Listened) -> List[Dict[str, Any]]:
    """Returns [{name: "shop:checkout", arguments: 2, listened, path}, ...], sorted by name.

    listened: takes the address of a semaphore; its result becomes the field. path: the file through
    which a tracer reaches every process with this provider, or None. Raises OSError when the
    process has ended.
    """
    libraries = [file for file in files(pid) if LIBRARY.search(file.path)][: bounds.OWN_LIBRARIES]
    return sorted(
        (probe for file in libraries for probe in _in(file, listened)), key=lambda probe: str(probe["name"])
    )


def _in(file: Mapped, listened: Listened) -> List[Dict[str, Any]]:
    path = None if file.path.endswith(DELETED) else file.path.decode(errors="replace")
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
                "listened": listened(probe.semaphore and probe.semaphore + elf.bias(file.start)),
                "path": path,
            }
            for probe in elf.probes()
        ]
    except (OSError, Malformed):  # not an ELF file, or truncated
        return []
    finally:
        os.close(descriptor)
