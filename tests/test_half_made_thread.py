"""A thread state of CPython 3.11 that is in the interpreter's list before it is filled."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# CPython puts a new thread state into the list, and then asks for the thread's number. This makes
# the call of other threads than the main one take 100 ms.
SLOW_GETTID = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

long syscall(long number, ...)
{
    static long (*real)(long, ...);
    if (!real) real = dlsym(RTLD_NEXT, "syscall");
    long a[6];
    va_list more;
    va_start(more, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(more, long);
    va_end(more);
    long result = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == SYS_gettid && result != getpid()) usleep(100000);
    return result;
}
"""

# The library makes a thread state without the GIL in a child that was forked while hooks were in.
PROGRAM = """
import os, time
import gate

def still(number):
    return number

gate.on("line")
statuses = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            still(1)
        os._exit(0)
    statuses.append(os.waitpid(child, 0)[1])
gate.done(statuses=statuses)
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="of another CPython: before 3.12")
def test_a_call_during_the_making_of_a_thread_state_does_no_harm(program, attach, tmp_path):
    source, library = tmp_path / "slow.c", tmp_path / "slow.so"
    source.write_text(SLOW_GETTID)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    target = program(PROGRAM, env={"PROBESCOPE_FORCE": "1", "LD_PRELOAD": str(library)})
    attach(target, "line")
    assert json.loads(target.line("report "))["statuses"] == [0, 0, 0]
