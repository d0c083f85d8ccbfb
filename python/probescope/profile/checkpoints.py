"""Checkpoints of a long recording."""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime
from typing import Callable, Optional

from probescope.profile.destination import Destination
from probescope.profile.recording import Recording

# Seconds between two checkpoints, and how many times the seconds that one takes at least.
EVERY = 60
REST = 20


class Checkpoints:
    """Writes a checkpoint from time to time, in a child, so that the trace goes on meanwhile. A command
    that is killed leaves the last one.
    """

    def __init__(
        self, destination: Destination, recording: Callable[[], Recording], say: Callable[[str], None]
    ) -> None:
        """recording: makes the Recording. say: called with a text for the user."""
        self._destination = destination
        self._recording = recording
        self._say = say
        self._every: float = EVERY
        self._began = time.monotonic()
        self._child: Optional[int] = None

    def step(self) -> None:
        """Called often. Begins a checkpoint when it is time."""
        if self._child:
            self._collect()
        elif time.monotonic() - self._began >= self._every:
            self._began = time.monotonic()
            self._child = os.fork() or self._write()

    def stop(self) -> None:
        """Ends a checkpoint that is under way."""
        if self._child:
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            self._child = None
            self._destination.remove_unfinished()

    def _write(self) -> int:
        """In the child."""
        status = 1
        try:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            self._destination.checkpoint(self._recording())
            status = 0
        finally:
            os._exit(status)

    def _collect(self) -> None:
        assert self._child
        child, status = os.waitpid(self._child, os.WNOHANG)
        if not child:
            return
        self._child = None
        self._every = max(self._every, REST * (time.monotonic() - self._began))
        if status == 0:
            self._destination.checkpoint_at = datetime.now()
        else:
            self._say(f"the checkpoint {self._destination.part} could not be written; the recording goes on")
