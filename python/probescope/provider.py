"""USDT probes that an application defines itself while it runs:

    shop = probescope.Provider("shop")
    checkout = shop.probe("checkout", str, int)
    shop.load()

    checkout.fire("basket", 3)
    checkout(lambda: (costly_name(), costly_count()))  # calls the lambda only while a tracer listens

    bpftrace -p PID -e 'usdt:*:shop:checkout { printf("%s %d\\n", str(arg0), arg1) }'

Wrong arguments raise TypeError in development (see set_strict()). Otherwise they are counted in
`dropped`. A probe is never enabled where probescope.unavailable_reason() is not None.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Dict, Optional, Union

import probescope

# int is int64. A tracer sees a float as its 64 bits.
TYPES: Dict[Any, int] = {
    str: 0x208, int: -8, float: 0x108, "str": 0x208, "int": -8, "float": 0x108,
    "int8": -1, "uint8": 1, "int16": -2, "uint16": 2, "int32": -4, "uint32": 4, "int64": -8, "uint64": 8,
}  # fmt: skip

# The name of a provider or a probe. Every tracer accepts these characters.
NAME = re.compile(r"[A-Za-z0-9_.+-]{1,127}", re.ASCII)


class Unavailable:
    """Stands in for a probe when the native library is not loaded."""

    enabled = False
    dropped = 0

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Any, **named: Any) -> bool:
        return False

    def fire(self, *arguments: Any, **named: Any) -> bool:
        return False


def set_strict(value: bool) -> None:
    """Sets whether a call with wrong arguments raises TypeError.

    By default it raises in Python's development mode (python -X dev) and with PROBESCOPE_STRICT=1.
    """
    if probescope._native:
        probescope._native.set_strict(value)


set_strict(os.environ.get("PROBESCOPE_STRICT", "1" if sys.flags.dev_mode else "0") == "1")


def checked(name: Any) -> str:
    found = NAME.fullmatch(name) if isinstance(name, str) else None
    if found:
        return found[0]
    raise probescope.Error(f"no name: {name!r:.200} (1 to 127 of A-Z a-z 0-9 _ - . +)")


class Provider:
    """A named set of probes. Invalid names and types raise probescope.Error."""

    def __init__(self, name: str) -> None:
        self.name = checked(name)
        self.probes: Dict[str, Any] = {}
        # Why the provider is not loaded, such as "no place for the library of provider shop: ...".
        self.error: Optional[str] = probescope.unavailable_reason()
        self._native = None if self.error else probescope._native.Provider(self.name)

    def probe(self, name: str, *types: Union[type, str]) -> Any:
        """Adds a probe and returns it. The provider must not be loaded.

        Types: str, int, float, or names such as "uint8".
        """
        name = checked(name)
        for one in types:
            if not isinstance(one, (str, type)) or one not in TYPES:
                raise probescope.Error(f"no such type: {one!r} (there are {', '.join(map(str, TYPES))})")
        if name in self.probes:
            raise probescope.Error(f"probe {name} of {self.name} is there already")
        made = (
            self._native.add(name, tuple(TYPES[one] for one in types)) if self._native else Unavailable(name)
        )
        if isinstance(made, str):
            raise probescope.Error(made)
        self.probes[name] = made
        return made

    def __getitem__(self, name: str) -> Any:
        return self.probes[name]

    def load(self) -> bool:
        """Makes the probes visible to tracers. Returns False on failure; `error` says why."""
        if not self._native:
            return False
        self.error = self._native.load()
        return self.error is None

    def unload(self) -> bool:
        """Hides the probes from tracers. They can still be fired, without effect.

        After this, probes can be added, and the provider can be loaded again.
        """
        return bool(self._native.unload()) if self._native else True

    @property
    def path(self) -> Optional[str]:
        """The file through which a tracer reaches every process with this provider, or None."""
        return self._native.path() if self._native else None

    @property
    def dropped(self) -> int:
        """The number of calls with wrong arguments."""
        return sum(probe.dropped for probe in self.probes.values())
