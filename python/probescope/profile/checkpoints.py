"""Checkpoints of a long recording."""

from __future__ import annotations

import os
import signal
import time
from typing import Callable, Optional

from probescope.command.interrupts import SIGNALS
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
        self,
        destination: Destination,
        recording: Callable[[], Recording],
        say: Callable[[str], None],
        every: float = EVERY,
    ) -> None:
        """recording: makes the Recording. say: called with a text for the user."""
        self._destination = destination
        self._recording = recording
        self._say = say
        self._least = self._every = every
        self._began = time.monotonic()
        self._child: Optional[int] = None
        # Through which the child tells how many seconds it has taken.
        self._seconds = -1

    def step(self) -> None:
        """Called often, once there is something to write. Begins a checkpoint when it is time."""
        if self._child:
            self._collect()
        elif time.monotonic() - self._began >= self._every:
            self._began = time.monotonic()
            self._start()

    def stop(self) -> None:
        """Ends a checkpoint that is under way."""
        if self._child:
            os.kill(self._child, signal.SIGKILL)
            self._ended(os.waitpid(self._child, 0)[1])
            self._destination.remove_unfinished_checkpoint()

    def _start(self) -> None:
        """There may be no memory for another process."""
        try:
            self._seconds, writer = os.pipe()
            try:
                self._child = os.fork() or self._write(writer)
            except OSError:
                os.close(self._seconds)
                raise
            finally:
                os.close(writer)
            self._destination.begun_checkpoint = True
        except OSError:
            self._failed()

    def _write(self, writer: int) -> int:
        """In the child."""
        status = 1
        try:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            began = time.monotonic()
            self._destination.checkpoint(self._recording())
            os.write(writer, str(time.monotonic() - began).encode())
            status = 0
        finally:
            os._exit(status)

    def _collect(self) -> None:
        """The child may have ended long ago: nobody calls step() while the process is silent."""
        assert self._child
        child, status = os.waitpid(self._child, os.WNOHANG)
        if child and not self._ended(status):
            self._failed()

    def _ended(self, status: int) -> bool:
        """Returns whether the checkpoint was written."""
        with open(self._seconds, "rb") as file:
            seconds = file.read()
        self._child = None
        if status or not seconds:
            return False
        self._every = max(self._least, REST * float(seconds))
        self._destination.checkpoint_written()
        return True

    def _failed(self) -> None:
        self._say(f"the checkpoint {self._destination.part} could not be written; the recording goes on")
