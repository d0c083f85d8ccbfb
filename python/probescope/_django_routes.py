"""Django's routes as templates that people read: ^issues/(?P<pk>[0-9]+)/$ is /issues/<pk>/.

ResolverMatch.route is what path() and re_path() were given, joined where include() is between them,
so that one of them may have parts of both kinds: "shop/<slug:name>/(?P<pk>[0-9]+)/$". What path()
was given stays as it is.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["template"]

# A route with none of these is path()'s.
OF_PATTERNS = re.compile(r"[\^$(\[\\]")
# What a group without a name is called, and what stands for anything.
UNNAMED, ANY = "<var>", "*"
# How a group begins: with a name, with a name that was there before, as one that only holds
# together, as one that is no part of the path.
NAMED = re.compile(r"\(\?P<(\w+)>")
REPEATED = re.compile(r"\(\?P=(\w+)")
HOLDS = re.compile(r"\(\?(?:[a-zA-Z-]*:|>)")
ASIDE = re.compile(r"\(\?")
# [...], in which "]" may come first; what path() has in angle brackets; how often.
CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]?")
OF_PATH = re.compile(r"<[^<>]*>")
QUANTIFIER = re.compile(r"([?*+]|\{\d*,?\d*\})[?+]?")
MOST_ROUTES = 4096


@lru_cache(MOST_ROUTES)
def template(route: str) -> str:
    """Of a ResolverMatch. Raises nothing, whatever the route is."""
    return f"/{_Pattern(route).text()}" if OF_PATTERNS.search(route) else f"/{route}"


class _Pattern:
    """Reads a regular expression once, from the left."""

    def __init__(self, route: str) -> None:
        self.route = route
        self.at = 0

    def text(self) -> str:
        """Up to the end of a group, or of all. ANY where it is one of several."""
        parts = []
        choice = False
        while self.at < len(self.route) and self.route[self.at] != ")":
            choice = choice or self.route[self.at] == "|"
            part = self._part()
            often = self._take(QUANTIFIER)
            if often and len(part) == 1:
                # ".*" is anything, and "/?" need not be there.
                part = ANY if part in (".", ANY) else "" if often[1] in "?*" else part
            parts.append(part)
        return ANY if choice else "".join(parts)

    def _part(self) -> str:
        char = self.route[self.at]
        if char == "(":
            return self._group()
        if self._take(CLASS):
            return ANY
        kept = self._take(OF_PATH)
        if kept:
            return kept[0]
        self.at += 1
        if char != "\\":
            return "" if char in "^$" else char
        letter = self.route[self.at : self.at + 1]
        self.at += 1
        return (
            ANY
            if letter in ("d", "D", "w", "W", "s", "S")
            else ("" if letter in ("A", "Z", "b", "B") else letter)
        )

    def _group(self) -> str:
        named = self._take(NAMED) or self._take(REPEATED)
        holds = not named and self._take(HOLDS)
        aside = not named and not holds and self._take(ASIDE)
        if not (named or holds or aside):
            self.at += 1
        inner = self.text()
        self.at += 1  # what closes it
        return f"<{named[1]}>" if named else inner if holds else "" if aside else UNNAMED

    def _take(self, what: "re.Pattern[str]") -> "re.Match[str] | None":
        found = what.match(self.route, self.at)
        if found:
            self.at = found.end()
        return found
