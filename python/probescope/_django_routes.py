"""Turns Django's routes into readable templates: ^issues/(?P<pk>[0-9]+)/$ becomes /issues/<pk>/.

ResolverMatch.route joins the arguments of path(), re_path() and include(). So one route may mix
both syntaxes: "shop/<slug:name>/(?P<pk>[0-9]+)/$". The parts from path() stay as they are.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["template"]

# A route without any of these characters comes from path().
OF_PATTERNS = re.compile(r"[\^$(\[\\]")
# The template of a group without a name, and of a pattern that matches various texts.
UNNAMED, ANY = "<var>", "*"
# Kinds of groups, by how they begin: named, a reference to a named group, non-capturing or atomic,
# and (ASIDE) others such as lookaheads, which match no part of the path.
NAMED = re.compile(r"\(\?P<(\w+)>")
REPEATED = re.compile(r"\(\?P=(\w+)")
HOLDS = re.compile(r"\(\?(?:[a-zA-Z-]*:|>)")
ASIDE = re.compile(r"\(\?")
# CLASS: [...], in which "]" may come first. OF_PATH: a converter of path(), in angle brackets.
# QUANTIFIER: how often the part before it may occur.
CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]?")
OF_PATH = re.compile(r"<[^<>]*>")
QUANTIFIER = re.compile(r"([?*+]|\{\d*,?\d*\})[?+]?")
MOST_ROUTES = 4096


@lru_cache(MOST_ROUTES)
def template(route: str) -> str:
    """Returns the template for ResolverMatch.route. Never raises."""
    return f"/{_Pattern(route).text()}" if OF_PATTERNS.search(route) else f"/{route}"


class _Pattern:
    """Reads a regular expression in one pass, from left to right."""

    def __init__(self, route: str) -> None:
        self.route = route
        self.at = 0

    def text(self) -> str:
        """Reads to the end of a group or of the route. Returns ANY for alternatives ("|")."""
        parts = []
        choice = False
        while self.at < len(self.route) and self.route[self.at] != ")":
            choice = choice or self.route[self.at] == "|"
            part = self._part()
            often = self._take(QUANTIFIER)
            if often and len(part) == 1:
                # ".*" matches anything; in "/?" the slash is optional.
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
        self.at += 1  # the closing bracket
        return f"<{named[1]}>" if named else inner if holds else "" if aside else UNNAMED

    def _take(self, what: "re.Pattern[str]") -> "re.Match[str] | None":
        found = what.match(self.route, self.at)
        if found:
            self.at = found.end()
        return found
