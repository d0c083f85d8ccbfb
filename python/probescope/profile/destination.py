"""The file of a recording."""

from __future__ import annotations

import contextlib
import os
from datetime import datetime
from typing import IO, Callable, Dict, Iterator, Optional

from probescope.command.errors import CommandError, Usage
from probescope.command.text import size
from probescope.profile import collapsed, page, pprof_writer, speedscope
from probescope.profile.recording import Recording

Formats = Dict[str, Callable[[Recording, IO[bytes], int], None]]
FORMATS: Formats = {
    ".html": page.write,
    ".pb.gz": pprof_writer.write,
    ".speedscope.json": speedscope.write,
    ".collapsed": collapsed.write,
}
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

    def __init__(self, path: str, force: bool = False, formats: Optional[Formats] = None) -> None:
        """force: whether an existing file is replaced. formats: those that the command can write; all
        by default. Raises Usage.
        """
        formats = formats or FORMATS
        self.path = path
        self.part = f"{path}.part"
        # When the last checkpoint was written.
        self.checkpoint_at: Optional[datetime] = None
        write = next((one for ending, one in formats.items() if path.endswith(ending)), None)
        if not write:
            raise Usage(f"{path!r} has no format's ending", f"-o FILE with the ending {', '.join(formats)}")
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
        """Writes a recording. kind: for a format with one kind. Returns the number of bytes. Raises
        CommandError when there is no room.
        """
        return self.save(lambda file: self._write(recording, file, kind))

    def save(self, write: Callable[[IO[bytes]], None]) -> int:
        """The same with what the function writes."""
        try:
            with self._replaced(self.path) as file:
                write(file)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.part)
            return os.path.getsize(self.path)
        except OSError as error:
            raise self._failed(error, write) from None

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

    def _failed(self, error: OSError, write: Callable[[IO[bytes]], None]) -> CommandError:
        count = _Count()
        write(count)  # type: ignore[arg-type]
        rest = ""
        if self.checkpoint_at:
            rest = f"; {self.part} is a checkpoint of {self.checkpoint_at:%H:%M:%S}"
        return CommandError(
            f"cannot write {self.path}, which needs {size(count.bytes)}: {error.strerror}{rest}",
            "-o a file on a disk with room",
        )
