"""Runs the questions of foreign.py in a child. Each call returns an answer or raises CommandError
within seconds.

A child that does not answer is killed, and the next question starts a new one. A child that waits
for a FUSE file may survive SIGKILL until that file system answers, so its end is not awaited. Until
such a child has ended, its process is not read again: each question could leave another child
behind.
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import socket
import struct
import time
from typing import Any, Dict, List, NoReturn, Optional

from probescope.command import bounds, foreign
from probescope.command.errors import CommandError, Refused

# Time limits in seconds. LONGEST applies while the child uses a CPU. Its waits for a CPU are not
# counted, up to MOST_DELAYED (docs/decisions/163-foreign-processes-are-read-in-a-child.md).
LIMIT, LONGEST, MOST_DELAYED = 1.0, 5.0, 15.0
LATE = f"it was not read within {LIMIT:.0f} s"
SIZE = struct.Struct("<I")


class Reader:
    def __init__(self) -> None:
        self._socket: Optional[socket.socket] = None
        self._pid = 0
        self._cpu: List[bytes] = []
        self._left: Dict[int, int] = {}  # killed children that have not ended, by the process that they read

    def ask(self, question: str, subject: Any, *arguments: Any) -> Any:
        """question: a function of foreign.py. subject: its first argument, a PID or a Place.

        Returns what the function returns. Raises CommandError.
        """
        pid = subject if isinstance(subject, int) else subject.pid
        if not self._has_ended(pid):
            raise Refused("slow", f"process {pid}: {LATE}")
        try:
            answer = self._put((question, subject, *arguments))
        except (OSError, EOFError) as error:
            self._left[pid] = self._pid
            self._stop()
            why = LATE if isinstance(error, TimeoutError) else "its reader ended"
            raise Refused("slow", f"process {pid}: {why}") from None
        except BaseException:
            # Ctrl-C: a late answer would be taken for that of the next question.
            self._stop()
            raise
        if isinstance(answer, CommandError):
            raise answer
        return answer

    def _put(self, message: Any) -> Any:
        if not self._socket:
            self._start()
        assert self._socket
        _write(self._socket, message)
        began = moved = time.monotonic()
        delayed = None
        while not select.select([self._socket], [], [], LIMIT / 4)[0]:
            now = time.monotonic()
            if delayed is None:
                delayed = self._run_delay()
            if self._running():
                moved = now
            longest = LONGEST + min(self._run_delay() - delayed, MOST_DELAYED)
            if now - moved >= LIMIT or now - began > longest:
                raise TimeoutError
        answer = _read(self._socket)
        if not isinstance(answer, foreign.Handed):
            return answer
        data, sent, _, _ = self._socket.recvmsg(1, socket.CMSG_SPACE(struct.calcsize("i")), 0)
        if not data or not sent:
            raise EOFError
        (descriptor,) = struct.unpack("i", sent[0][2])
        os.set_inheritable(descriptor, False)
        return descriptor, answer.answer

    def _running(self) -> bool:
        """Whether the child is making progress: it can run, or it has used CPU time since the last
        call.
        """
        with open(f"/proc/{self._pid}/stat", "rb") as file:
            state, *fields = file.read().rpartition(b") ")[2].split()
        before, self._cpu = self._cpu, fields[10:12]
        return state == b"R" or self._cpu != before

    def _run_delay(self) -> float:
        """The seconds that the child has waited for a CPU, 0 where the kernel does not count them
        (CONFIG_SCHED_INFO).
        """
        try:
            with open(f"/proc/{self._pid}/schedstat") as file:
                return int(file.read().split()[1]) / 1e9
        except (OSError, IndexError):
            return 0.0

    def _start(self) -> None:
        self._socket, other = socket.socketpair()
        self._pid = os.fork()
        if not self._pid:
            _child(other)
        other.close()

    def _stop(self) -> None:
        if not self._socket:
            return
        self._socket.close()
        self._socket = None
        try:
            os.kill(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def _has_ended(self, pid: int) -> bool:
        """Returns False while a killed child that read this process is still alive."""
        child = self._left.get(pid)
        try:
            if child and not os.waitpid(child, os.WNOHANG)[0]:
                return False
        except ChildProcessError:
            pass
        self._left.pop(pid, None)
        return True


def _child(connection: socket.socket) -> NoReturn:
    """Runs in the child, with no open file but its socket. Ends when the socket closes."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        own = connection.fileno()
        os.closerange(0, own)
        os.closerange(own + 1, 1 << 16)
        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + bounds.READER_BYTES, size + bounds.READER_BYTES))
        while True:
            question, subject, *arguments = _read(connection)
            answer = _answer(question, subject, arguments)
            _write(connection, answer)
            if isinstance(answer, foreign.Handed):
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", answer.descriptor))
                connection.sendmsg([b"\0"], [rights])
                os.close(answer.descriptor)
    except BaseException:  # the parent has closed the socket
        os._exit(0)


def _answer(question: str, subject: Any, arguments: List[Any]) -> Any:
    """Returns the question's result or a CommandError. Raises nothing."""
    pid = subject if isinstance(subject, int) else subject.pid
    try:
        return getattr(foreign, question)(subject, *arguments)
    except Refused as error:
        prefix = f"process {pid}: " if error.kind in ("malformed", "busy") else ""
        return _refused(error.kind, f"{prefix}{error}", error.next_step)
    except CommandError as error:
        return error
    except PermissionError:
        step = (
            "run the command as root (sudo)"
            if os.geteuid()
            else "run the command on the host, outside of containers"
        )
        return _refused("denied", f"process {pid} may not be read", step)
    except (FileNotFoundError, ProcessLookupError):
        return _refused("gone", f"process {pid} has just ended")
    except MemoryError:
        return _refused("slow", f"process {pid}: to read it takes too much memory")
    except Exception as error:
        return _refused("malformed", f"process {pid}: it cannot be read ({type(error).__name__}: {error})")


def _refused(kind: str, message: str, step: Optional[str] = None) -> Refused:
    return Refused(kind, message, step)


def _write(connection: socket.socket, value: Any) -> None:
    data = pickle.dumps(value)
    connection.sendall(SIZE.pack(len(data)) + data)


def _read(connection: socket.socket) -> Any:
    """Raises EOFError when the other side has closed the socket."""
    return pickle.loads(_exactly(connection, SIZE.unpack(_exactly(connection, SIZE.size))[0]))


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
