"""The process that bench/kernel_events.rb measures. It reads commands, one a line, and answers each
with one line:

    measure WORK    -> the work's units in all rounds, and the ns of CPU time and of wall time for one
                       unit: the tenth percentile of the rounds
    spin            -> runs for a moment, so that hooks are switched

A work makes one kind of event, in one traced function. One unit of `handover` is there and back: two
handovers. All threads run on one CPU, so that each handover is a switch.
"""

import mmap
import os
import sys
import threading
import time

ROUNDS = int(os.environ.get("ROUNDS", "250"))
# Units in a round: less than a ms without a tracer, so that few rounds are interrupted.
TIMES = {"getppid": 500, "read": 500, "page_fault": 512, "handover": 100, "malloc": 2000}
PAGE = mmap.PAGESIZE

zeros = os.open("/dev/zero", os.O_RDONLY)
memory = mmap.mmap(-1, TIMES["page_fault"] * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
there, back = threading.Lock(), threading.Lock()


def getppid(times):
    for _ in range(times):
        os.getppid()


def read(times):
    for _ in range(times):
        os.read(zeros, 1)


def page_fault(times):
    memory.madvise(mmap.MADV_DONTNEED)
    memory[::PAGE] = bytes(times)


def handover(times):
    for _ in range(times):
        there.release()
        back.acquire()


def answer(times):
    for _ in range(times):
        there.acquire()
        back.release()


def answers(times):
    for _ in range(ROUNDS):
        answer(times)


def malloc(times):
    for _ in range(times):
        _ = [None] * 100  # 800 bytes, which Python's own allocator leaves to malloc


def rounds(function, times):
    """Returns ns of CPU time and of wall time of a round: the tenth percentiles."""
    cpu, wall = [], []
    for _ in range(ROUNDS):
        started, began = time.perf_counter_ns(), time.process_time_ns()
        function(times)
        cpu.append(time.process_time_ns() - began)
        wall.append(time.perf_counter_ns() - started)
    return [sorted(all_rounds)[ROUNDS // 10] for all_rounds in (cpu, wall)]


def with_partner(function, times):
    partner = threading.Thread(target=answers, args=(times,))
    partner.start()
    found = rounds(function, times)
    partner.join()
    return found


def measure(work):
    times = TIMES[work]
    measured = with_partner if work == "handover" else rounds
    cpu, wall = measured(globals()[work], times)
    return f"{ROUNDS * times} {cpu / times:.1f} {wall / times:.1f}"


def spin():
    deadline = time.process_time() + 0.02
    while time.process_time() < deadline:
        pass
    return "ok"


def main():
    there.acquire()
    back.acquire()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print("ready", flush=True)
    for line in sys.stdin:
        command, *what = line.split()
        print(f"{command}: {measure(*what) if command == 'measure' else spin()}", flush=True)


main()
