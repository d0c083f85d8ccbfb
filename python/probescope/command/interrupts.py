"""Ctrl-C, TERM and a closed terminal."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Dict, Optional

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Counts these signals while it is entered, for a command that must not lose what it has: an
    exception at any place could lose a line that is being read, or add half of a second's figures.
    """

    def __init__(self) -> None:
        self._arrived = self._raised = 0
        self._before: Dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        self._before = {number: signal.signal(number, self._count) for number in SIGNALS}
        if self._before[signal.SIGHUP] is signal.SIG_IGN:  # nohup
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def check(self) -> None:
        """Raises KeyboardInterrupt, once for each signal."""
        if self._raised < self._arrived:
            self._raised += 1
            raise KeyboardInterrupt

    def _count(self, _number: int, _frame: Optional[FrameType]) -> None:
        self._arrived += 1
