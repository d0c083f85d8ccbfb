"""The file of a recording."""

from __future__ import annotations

import contextlib
import os
from datetime import datetime
from typing import IO, Callable, Dict, Iterator, Optional

from probescope.command.errors import CommandError, Usage
from probescope.command.text import size
from probescope.profile import collapsed, pprof_writer, speedscope
from probescope.profile.recording import Recording

FORMATS: Dict[str, Callable[[Recording, IO[bytes], int], None]] = {
    ".pb.gz": pprof_writer.write,
    ".speedscope.json": speedscope.write,
    ".collapsed": collapsed.write,
}
ENDINGS = ", ".join(FORMATS)
# The owner alone: a recording has paths and routes.
MODE = 0o600
FOLDER = "-o a file in a folder that you may write to"


class _Count:
    """Counts bytes."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: bytes) -> int:
        self.bytes += len(data)
        return len(data)

    def writelines(self, lines: "list[bytes]") -> None:
        self.bytes += sum(map(len, lines))

    def flush(self) -> None:
        pass


class Destination:
    """The file's ending is the format.

    The file has its name only when it is complete: it is written beside that, and renamed. A checkpoint
    of a long recording is FILE.part.
    """

    def __init__(self, path: str, force: bool = False) -> None:
        """force: whether an existing file is replaced. Raises Usage."""
        self.path = path
        self.part = f"{path}.part"
        # When the last checkpoint was written.
        self.checkpoint_at: Optional[datetime] = None
        write = next((one for ending, one in FORMATS.items() if path.endswith(ending)), None)
        if not write:
            raise Usage(f"{path!r} has no format's ending", f"-o FILE with one of the endings {ENDINGS}")
        self._write = write
        folder = os.path.dirname(path) or "."
        if not (os.path.isdir(folder) and os.access(folder, os.W_OK)) or os.path.isdir(path):
            raise Usage(f"cannot write {path!r}", FOLDER)
        if force:
            return
        if os.path.lexists(path):
            raise Usage(f"{path} exists", "another name, or --force, which replaces it")
        if os.path.lexists(self.part):
            raise Usage(
                f"{self.part} is what a recording that was killed has left",
                f"probescope convert {self.part}, or --force, which removes it",
            )

    def write(self, recording: Recording, kind: int = 0) -> int:
        """Writes the file. kind: for a format with one kind. Returns the number of bytes. Raises
        CommandError when there is no room.
        """
        try:
            with self._replaced(self.path) as file:
                self._write(recording, file, kind)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.part)
            return os.path.getsize(self.path)
        except OSError as error:
            raise self._failed(error, recording, kind) from None

    def checkpoint(self, recording: Recording) -> None:
        """Writes FILE.part, a pprof file whatever the format."""
        with self._replaced(self.part) as file:
            pprof_writer.write(recording, file)

    def remove_unfinished(self) -> None:
        """For after a write that was killed."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.path}.new")

    @contextlib.contextmanager
    def _replaced(self, name: str) -> Iterator[IO[bytes]]:
        new = f"{self.path}.new"
        self.remove_unfinished()
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
            with open(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(descriptor)
            os.replace(new, name)
        except OSError:
            self.remove_unfinished()
            raise

    def _failed(self, error: OSError, recording: Recording, kind: int) -> CommandError:
        count = _Count()
        self._write(recording, count, kind)  # type: ignore[arg-type]
        rest = ""
        if self.checkpoint_at:
            rest = f"; {self.part} is a checkpoint of {self.checkpoint_at:%H:%M:%S}"
        return CommandError(
            f"cannot write {self.path}, which needs {size(count.bytes)}: {error.strerror}{rest}",
            "-o a file on a disk with room",
        )
