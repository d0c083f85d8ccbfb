"""Which files are the application's own, and not those of a library.

It is decided from what a trace has seen, so another choice needs no restart of the process (decision
238).
"""

from __future__ import annotations

import difflib
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Pattern, Sequence, Tuple

# What the process counts as its own is taken from this share of the figures on: a script that only
# starts an installed package is on few stacks, and never where threads work.
LEAST = 0.01
WILD = re.compile(r"[*?\[]")
PART = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
SET = re.compile(r"\[(!?)(.+)\]", re.DOTALL)


class Frame(NamedTuple):
    """A frame of a call path."""

    function: str
    path: str
    # The line that runs or calls, and the line of the definition; 0 where unknown.
    line: int
    defined: int
    # Whether the process counts its file as the application's.
    own: bool
    # Whether it is no function.
    what: bool


# [(frame, number of the frame that called it or None, weight of the stacks that end here)], callers
# first.
Paths = Sequence[Tuple[Frame, Optional[int], float]]


class Own:
    """by: "glob" (--own), "process" (what the process counts as its own), "entry" (the package that was
    started) or "none" (nothing is known to be the application's). globs: of the files, if they are
    chosen by globs; of a package that was started, those that files match. unmatched: the globs of
    --own that no file matches.
    """

    def __init__(
        self, by: str, globs: Sequence[str] = (), without: Sequence[str] = (), frames: Iterable[Frame] = ()
    ) -> None:
        self.by = by
        self._patterns = [pattern(glob) for glob in globs]
        self._without = [pattern(glob) for glob in without]
        self._known: Dict[str, bool] = {}
        paths = list(dict.fromkeys(frame.path for frame in frames if not frame.what))
        matched = [
            glob for glob, one in zip(globs, self._patterns) if any(one.fullmatch(path) for path in paths)
        ]
        self.globs = matched if by == "entry" else list(globs)
        self.unmatched = [glob for glob in self.globs if glob not in matched]

    def is_own(self, frame: Frame) -> bool:
        """Returns whether the frame is the application's."""
        if frame.what or self.by == "none":
            return False
        if self.by == "process":
            return frame.own and not _any(self._without, frame.path)
        if frame.path not in self._known:
            matches = _any(self._patterns, frame.path) and not _any(self._without, frame.path)
            self._known[frame.path] = matches
        return self._known[frame.path]

    def warnings(self, paths: Iterable[str]) -> List[str]:
        """Returns a text for each glob of --own that no file matches. paths: all that it could match."""
        every = sorted(set(paths) - {""})
        found = []
        for glob in self.unmatched:
            near = difflib.get_close_matches(glob, every, cutoff=0.2)
            found.append(f"--own {glob}: no file matches{'; near: ' + ', '.join(near) if near else ''}")
        return found

    @property
    def matches_nothing(self) -> bool:
        """Whether files are chosen by globs, and no file matches any of them."""
        return bool(self.globs) and self.unmatched == self.globs

    @property
    def known(self) -> bool:
        return self.by != "none"

    @property
    def text(self) -> str:
        """What the head of a table says."""
        if self.by == "glob":
            return f"own: {', '.join(self.globs)}"
        if self.by == "process":
            return "own: the files that the process counts as the application's"
        if self.by == "entry":
            return f"own: {', '.join(self.globs)} (the package that was started)"
        return "own: not known"

    def to_json(self) -> Dict[str, Any]:
        return {"by": self.by, "globs": self.globs}


def choose(asked: Sequence[str], paths: Paths, entry: Sequence[str] = ()) -> Own:
    """asked: the globs of --own; one that begins with "!" takes files away. entry: globs of the package
    that was started, or [].
    """
    without = [glob[1:] for glob in asked if glob.startswith("!")]
    with_ = [glob for glob in asked if not glob.startswith("!")]
    frames = list(dict.fromkeys(frame for frame, _, _ in paths))
    part = share(paths, Own("process", without=without), Own("entry", entry))
    for by, globs in _candidates(with_, entry, part):
        own = Own(by, globs, without, frames)
        if any(own.is_own(frame) for frame in frames):
            return own
    return Own("none", with_, without, frames)


# Where a frame of the application is on a stack.
NOWHERE, OUTERMOST, INSIDE = range(3)


def share(paths: Paths, own: Own, starts: Own) -> float:
    """Returns the share of the weight of stacks with a frame of the application. The outermost frame of
    a stack does not count where it only starts the package (starts: its Own).
    """
    found: List[int] = []
    part = 0.0
    for frame, parent, weight in paths:
        found.append(_where(frame, None if parent is None else found[parent], own, starts))
        part += weight if found[-1] else 0
    whole = sum(weight for _, _, weight in paths)
    return part / whole if whole else 0.0


def _where(frame: Frame, outer: Optional[int], own: Own, starts: Own) -> int:
    """outer: the same of the caller; None without a caller."""
    if own.is_own(frame):
        return OUTERMOST if outer is None else INSIDE
    return NOWHERE if outer is None or (outer == OUTERMOST and starts.is_own(frame)) else outer


def pattern(glob: str) -> Pattern[str]:
    """Returns the pattern that the whole of a path has to match.

    * matches slashes, too. A glob that does not begin with / or * matches the end of paths, and one
    without *, ? and [ also matches what is in that folder.
    """
    anchored = glob if glob.startswith(("/", "*")) else f"*/{glob}"
    source = "".join(_part(part) for part in PART.findall(anchored))
    return re.compile(source if WILD.search(glob) else f"{source}(?:/.*)?", re.DOTALL)


def _candidates(with_: Sequence[str], entry: Sequence[str], part: float) -> List[Tuple[str, Sequence[str]]]:
    if with_:
        return [("glob", with_)]
    found: List[Tuple[str, Sequence[str]]] = [("process", ()), ("entry", entry)]
    return found[::-1] if part < LEAST and entry else found


def _part(part: str) -> str:
    if part == "*":
        return ".*"
    if part == "?":
        return "."
    found = SET.fullmatch(part)
    if found:
        inside = re.sub(r"[\[\]\\^&]", lambda one: f"\\{one[0]}", found[2])
        return f"[{'^' if found[1] else ''}{inside}]"
    return re.escape(part)


def _any(patterns: Iterable[Pattern[str]], path: str) -> bool:
    return any(one.fullmatch(path) for one in patterns)
