"""The tree of single calls. Each call stands below its nearest caller that is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Optional

from probescope.command.display import PASSED_ON


@dataclass
class Call:
    """row: has elapsed_ns and at. depth: the number of its callers that are shown."""

    id: int
    parent: int
    row: Dict[str, Any]
    depth: int = 0


class SlowCalls:
    def __init__(self, calls: Iterable[Call]) -> None:
        self._calls = {call.id: call for call in calls}
        self._shown = dict(self._calls)

    def leave_out_relays(self) -> int:
        """Hides relays that have a shown caller. Returns their number."""
        made = self._by_caller()
        within = [call for around, callees in made.items() if around is not None for call in callees]
        relays = [call for call in within if _is_relay(call, made.get(call.id, []))]
        for call in relays:
            del self._shown[call.id]
        return len(relays)

    def rows(self) -> List[Dict[str, Any]]:
        """Returns the rows with their depths: the longest call first, and each call's callees after
        it.
        """
        made = self._by_caller()

        def longest_last(by: Optional[int], depth: int) -> List[Call]:
            found = made.pop(by, [])
            for call in found:
                call.depth = depth
            return sorted(found, key=lambda call: (call.row["elapsed_ns"], call.row["at"]))

        found = []
        waiting = longest_last(None, 0)
        # The ids come from the process and may form a cycle. Calls in a cycle have no root, so they
        # come last.
        while waiting or made:
            waiting = waiting or longest_last(next(iter(made)), 0)
            call = waiting.pop()
            found.append({**call.row, "depth": call.depth})
            waiting.extend(longest_last(call.id, call.depth + 1))
        return found

    def _by_caller(self) -> Dict[Optional[int], List[Call]]:
        """Groups the shown calls by the id of their nearest shown caller; the key may be None."""
        # Maps the id of a call to itself if the call is shown, else to its nearest shown caller.
        nearest: Dict[Optional[int], Optional[int]] = {own: own for own in self._shown}
        made: Dict[Optional[int], List[Call]] = {}
        for call in self._shown.values():
            passed = []
            around = self._calls.get(call.parent)
            while around and around.id not in nearest:
                nearest[around.id] = None
                passed.append(around.id)
                around = self._calls.get(around.parent)
            found = nearest[around.id] if around else None
            nearest.update((one, found) for one in passed)
            made.setdefault(found, []).append(call)
        return made


def _is_relay(call: Call, callees: List[Call]) -> bool:
    """Whether the call only made the next one."""
    return len(callees) == 1 and callees[0].row["elapsed_ns"] >= call.row["elapsed_ns"] * PASSED_ON
