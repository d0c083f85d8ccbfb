"""Charges the figures of call paths to functions or lines of the application.

The figures of a path count for the innermost frame on it that is the application's. Without an
application they count for the innermost function that is no builtin, or where there is none for the
innermost one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Callable, Dict, Hashable, Iterator, List, NamedTuple, Optional, Tuple

from probescope.command.own_code import Frame, Own, Paths
from probescope.command.result import Result, numbers
from probescope.command.text import without_mark

# The flags of stack__frame.
OWN, WHAT = 1, 2
# The frame of a path whose names are missing.
UNNAMED = Frame("", "", 0, 0, False, True)

# Function, file (shortened) and line of the definition.
Name = Tuple[str, str, int]


class Node:
    """The end of a call path. weight, count: of the stacks that end here."""

    def __init__(self, frame: Frame, file: str, parent: Optional[Node], number: int) -> None:
        self.frame = frame
        self.file = file
        self.parent = parent
        self.number = number
        self.weight = 0
        self.count = 0

    @property
    def name(self) -> Name:
        return self.frame.function, self.file, self.frame.defined

    @property
    def is_builtin(self) -> bool:
        """A function of the VM itself, mostly in C."""
        return self.frame.path.startswith(("<cfunc>", "<internal:"))

    def outwards(self) -> Iterator[Node]:
        """Yields this node and those around it, the innermost one first."""
        node: Optional[Node] = self
        while node:
            yield node
            node = node.parent


class CallPaths:
    """The call paths of a trace, from the maps of a program such as hot_own.bt.

    nodes: callers before the functions that they call.
    """

    def __init__(self, result: Result) -> None:
        self.nodes: List[Node] = []
        self._known: Dict[int, Node] = {}
        self._frames = self._numbered(result, "frame")
        self._functions = self._numbered(result, "name")
        self._files = self._numbered(result, "file")
        self._paths = self._numbered(result, "full_path")
        for name in ("weight", "count"):
            for key, value in result.map(name).items():
                node = self._node(numbers(key)[-1])
                if node:  # no path has the number 0
                    setattr(node, name, getattr(node, name) + int(value))

    @property
    def weight(self) -> int:
        return sum(node.weight for node in self.nodes)

    @property
    def paths(self) -> Paths:
        """For own_code.choose."""
        return [(one.frame, one.parent.number if one.parent else None, one.weight) for one in self.nodes]

    @staticmethod
    def _numbered(result: Result, name: str) -> Dict[int, List[Any]]:
        """Returns {number: the other values} of a map whose values begin with a number."""
        return {int(number): [without_mark(one) for one in rest] for number, *rest in result.values(name)}

    def _node(self, number: int) -> Optional[Node]:
        """A chain of callers that ends in itself, which only a wrong description can make, ends there."""
        chain: Dict[int, List[int]] = {}
        outer = number
        while outer and outer not in self._known and outer not in chain:
            chain[outer] = [int(value) for value in self._frames.get(outer, [0])]
            outer = chain[outer][0]
        parent = self._known.get(outer)
        for one in reversed(chain):
            rest = chain[one][1:]
            frame, file = self._frame(one, *rest) if rest else (UNNAMED, "")
            parent = self._known[one] = Node(frame, file, parent, len(self.nodes))
            self.nodes.append(parent)
        return self._known.get(number)

    def _frame(self, number: int, line: int, defined: int, flags: int, file: int) -> Tuple[Frame, str]:
        function, short, path = (
            str(texts.get(key, [""])[0])
            for texts, key in ((self._functions, number), (self._files, file), (self._paths, file))
        )
        return Frame(function, path, line, defined, bool(flags & OWN), bool(flags & WHAT)), short


class Sum:
    """What one function or line was charged with.

    node: one of it. weight, count: of the paths that were charged to it. total, looks: of all paths
    that it is on. lines: {its line: weight}. called: {what it called: weight}. builtins: the same for
    those of them that are builtins and innermost.
    """

    def __init__(self, node: Optional[Node]) -> None:
        self.node = node
        self.weight = self.count = self.total = self.looks = 0
        self.lines: Dict[int, int] = defaultdict(int)
        self.called: Dict[Name, int] = defaultdict(int)
        self.builtins: Dict[Name, int] = defaultdict(int)

    def charge(self, node: Node, called: Optional[Name]) -> None:
        self.weight += node.weight
        self.count += node.count
        if called:
            self.called[called] += node.weight


class Charged(NamedTuple):
    """What call paths were charged to. outside: the sum of the paths without a frame of the
    application, whose `called` has the innermost functions.
    """

    sums: List[Sum]
    outside: Sum


def charge(paths: CallPaths, own: Optional[Own], key: Callable[[Frame], Hashable]) -> Charged:
    """key: what tells rows apart."""
    sums: Dict[Hashable, Sum] = {}
    outside = Sum(None)

    def counts(node: Node) -> bool:
        return own.is_own(node.frame) if own else not node.is_builtin

    def sum_of(node: Node) -> Sum:
        return sums.setdefault(key(node.frame), Sum(node))

    for node in paths.nodes:
        if not (node.weight or node.count):
            continue
        called: Optional[Node] = None
        for at in node.outwards():
            if counts(at):
                found = sum_of(at)
                found.charge(node, called.name if called else None)
                found.lines[at.frame.line] += node.weight
                if called is node and node.is_builtin:
                    found.builtins[node.name] += node.weight
                break
            called = at
        else:
            if own:
                innermost = next((one for one in node.outwards() if not one.is_builtin), node)
                outside.charge(node, innermost.name)
            else:
                found = sum_of(node)
                found.charge(node, None)
                found.lines[node.frame.line] += node.weight
        seen = set()
        for at in node.outwards():
            if (own and not own.is_own(at.frame)) or key(at.frame) in seen:
                continue
            seen.add(key(at.frame))
            found = sum_of(at)
            found.total += node.weight
            found.looks += node.count
    return Charged(list(sums.values()), outside)
