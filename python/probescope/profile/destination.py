"""The file of a recording."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
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
# Errors of a file system on which a file has one name only, such as FAT.
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
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

    The file has its name only when it is complete: it is written beside that, under a name that no
    other command has. A checkpoint of a long recording is FILE.part.
    """

    def __init__(self, path: str, force: bool = False, formats: Optional[Formats] = None) -> None:
        """force: whether an existing file is replaced. formats: those that the command can write; all
        by default. Raises Usage.
        """
        formats = formats or FORMATS
        self.path = path
        self.part = f"{path}.part"
        # Whether FILE.part may be a checkpoint of this recording.
        self.begun_checkpoint = False
        # When the last one was written.
        self._checkpoint_at: Optional[datetime] = None
        self._force = force
        token = secrets.token_hex(4)
        self._unfinished = f"{path}.{token}.new"
        self._unfinished_checkpoint = f"{self.part}.{token}.new"
        write = next((one for ending, one in formats.items() if path.endswith(ending)), None)
        if not write:
            raise Usage(f"{path!r} has no format's ending", f"-o FILE with the ending {', '.join(formats)}")
        self._write = write
        if not force:
            self._refuse_existing()
        self._try()

    def write(self, recording: Recording, kind: int = 0) -> int:
        """Writes a recording. kind: for a format with one kind. Returns the number of bytes. Raises
        CommandError when there is no room, or when the file cannot have its name.
        """
        return self.save(lambda file: self._write(recording, file, kind))

    def save(self, write: Callable[[IO[bytes]], None]) -> int:
        """The same with what the function writes."""
        try:
            with _created(self._unfinished) as file:
                write(file)
            written = os.path.getsize(self._unfinished)
            self._publish()
        except OSError as error:
            raise self._failed(error, write) from None
        if self._force or self.begun_checkpoint:
            _remove(self.part)
        return written

    def checkpoint(self, recording: Recording) -> None:
        """Writes FILE.part, a pprof file whatever the format."""
        with _created(self._unfinished_checkpoint) as file:
            pprof_writer.write(recording, file)
        os.replace(self._unfinished_checkpoint, self.part)

    def checkpoint_written(self) -> None:
        """Called after a checkpoint() in another process."""
        with contextlib.suppress(OSError):  # somebody has removed it
            self._checkpoint_at = datetime.fromtimestamp(os.path.getmtime(self.part))

    def remove_unfinished_checkpoint(self) -> None:
        """For after a checkpoint() that was killed."""
        _remove(self._unfinished_checkpoint)

    def _refuse_existing(self) -> None:
        if os.path.lexists(self.path):
            raise Usage(f"{self.path} exists", "another name, or --force, which replaces it")
        if os.path.lexists(self.part):
            raise Usage(
                f"{self.part} is what a recording that was killed has left",
                f"probescope convert {self.part}, or --force, which removes it",
            )

    def _try(self) -> None:
        """Raises Usage where the folder does not take the files."""
        try:
            if os.path.isdir(self.path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            with _created(self._unfinished_checkpoint):
                pass
            _remove(self._unfinished_checkpoint)
        except OSError as error:
            raise Usage(f"cannot write {self.path!r}: {error.strerror}", FOLDER) from None

    def _publish(self) -> None:
        """Gives the complete file its name. A file that has got that name meanwhile stays, unless it may
        be replaced.
        """
        try:
            if self._force or not self._linked():
                os.replace(self._unfinished, self.path)
            else:
                _remove(self._unfinished)
        except OSError as error:
            raise CommandError(
                f"cannot write {self.path}: {error.strerror}; the complete file is {self._unfinished}",
                f"mv {self._unfinished} to another name",
            ) from None

    def _linked(self) -> bool:
        """Returns False where a file has one name only."""
        try:
            os.link(self._unfinished, self.path)
            return True
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
        if os.path.lexists(self.path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        return False

    def _failed(self, error: OSError, write: Callable[[IO[bytes]], None]) -> CommandError:
        count = _Count()
        write(count)  # type: ignore[arg-type]
        rest = ""
        if self._checkpoint_at:
            rest = f"; {self.part} is a checkpoint of {self._checkpoint_at:%H:%M:%S}"
        return CommandError(
            f"cannot write {self.path}, which needs {size(count.bytes)}: {error.strerror}{rest}",
            "-o a file on a disk with room",
        )


@contextlib.contextmanager
def _created(name: str) -> Iterator[IO[bytes]]:
    """Leaves nothing when it fails."""
    whole = False
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        whole = True
    finally:
        if not whole:
            _remove(name)


def _remove(name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name)
