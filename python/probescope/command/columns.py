"""What a program prints while it runs, a line an event or a second, as columns under a heading."""

from __future__ import annotations

from typing import Callable, Dict, NamedTuple

from probescope.command.text import clean, duration


class Columns(NamedTuple):
    heading: str
    # Raises ValueError or IndexError for what the program did not mean as a line: a name of the target may have line breaks.
    line: Callable[[str], str]

    def show(self, line: str) -> str:
        try:
            return self.line(line)
        except (ValueError, IndexError):
            return _as_it_is(line)


def of(program: str) -> Columns:
    return PROGRAMS.get(program, Columns("", _as_it_is))


def _as_it_is(line: str) -> str:
    return "\t".join(map(clean, line.split("\t")))


SECOND = "{:>8}{:>12}{:>10}{:>11}{:>12}{:>10}{:>9}{:>8}{:>6}".format
CALL = "{:>9} {:>9}  {}".format
SLOW = "{:<8}  {:>8} {:>8}  {}".format


def _second(line: str, light: bool = False) -> str:
    """ "= PID WALL CPU CALLS RAISED BACKTRACE_NS ALLOCATED BYTES GC_NS SAMPLES DROPPED MISSED SUPPRESSED END" """
    wall, cpu, calls, raised, cost, allocated, size, collected, samples, dropped, missed, _ = map(
        int, line.split()[2:14]
    )
    share = f"{100 * cpu / wall:.1f} %" if wall else "-"
    costly = ("-", "-", "-") if light else (f"{calls:,}", f"{allocated:,}", f"{size / (1 << 20):,.1f} MiB")
    cheap = (f"{raised:,}", duration(cost))
    return SECOND(share, costly[0], *cheap, *costly[1:], duration(collected), samples, dropped + missed)


def _call(line: str) -> str:
    """ "> NUMBER PID THREAD CONTEXT DEPTH LINE\\tNAME\\tFILE", "< NUMBER PID THREAD CONTEXT DEPTH ELAPSED SELF OUTCOME\\tNAME",
    and each second "= NUMBER PID"."""
    figures, _, names = line.partition("\t")
    kind, *words = figures.split()
    numbers = list(map(int, words))
    if kind == "=":
        return ""
    indent = "  " * min(numbers[4], 60)
    if kind == ">":
        name, _, file = names.rpartition("\t")
        return CALL("", "", f"{indent}{clean(name)}  {clean(file)}:{numbers[5]}")
    outcome = ("", "  raised", "  suspended")[numbers[7]]
    return CALL(duration(numbers[5]), duration(numbers[6]), f"{indent}= {clean(names)}{outcome}")


def _slow(line: str) -> str:
    """ "TIME ELAPSED SELF FUNCTION FILE:LINE TRACE", in us."""
    ended, elapsed, own, rest = line.split(None, 3)
    return SLOW(ended, duration(int(elapsed) * 1000), duration(int(own) * 1000), clean(rest.rstrip()))


# How programs end that tell requests apart.
BY_REQUEST = "_by_request"
STAT = SECOND("CPU", "CALLS", "RAISES", "BACKTRACES", "ALLOCS", "BYTES", "GC", "SAMPLES", "LOST")
PROGRAMS: Dict[str, Columns] = {
    "stat": Columns(STAT, _second),
    "light": Columns(STAT, lambda line: _second(line, light=True)),
    "flow": Columns(CALL("ELAPSED", "SELF", "CALL"), _call),
    **{
        f"slow{least}ms{by_request}": Columns(SLOW("ENDED", "ELAPSED", "SELF", "FUNCTION"), _slow)
        for least in (1, 10, 100)
        for by_request in ("", BY_REQUEST)
    },
}
