"""A haulier's list: units in units, each with a name, in them goods with their weight in kg.

(container C-7 (pallet P-1 (crate K-3 tea 12 rice 40)) (pallet P-2 salt 9))
"""

import io
import re


class Invalid(Exception):
    """The text is not a manifest."""


class Source:
    """Text to read from, a file in memory or a str. This is the first mistake: a str has
    no getvalue(), so each one raises an AttributeError, which is discarded."""

    def __init__(self, text):
        try:
            self.text = text.getvalue()
        except AttributeError:
            self.text = text

    def tokens(self):
        return re.findall(r"[()]|[^()\s]+", self.text)


class CarefulSource(Source):
    """The same with a check first."""

    def __init__(self, text):
        self.text = text.getvalue() if isinstance(text, io.StringIO) else text


class Unit:
    """goods: [(name, weight as it was written), ...]; units: the Units inside."""

    def __init__(self, kind, name):
        self.kind = kind
        self.name = name
        self.goods = []
        self.units = []

    def weight(self):
        """In kg. Raises ValueError if a weight is not a number: it will be weighed at the gate."""
        total = 0
        for _, kilograms in self.goods:
            total += int(kilograms)
        for unit in self.units:
            total += unit.weight()
        return total

    def weighed(self):
        """Whether all goods have a weight."""
        return all(kg.isdigit() for _, kg in self.goods) and all(unit.weighed() for unit in self.units)

    def items(self):
        return len(self.goods) + sum(unit.items() for unit in self.units)

    def levels(self):
        return 1 + max((unit.levels() for unit in self.units), default=0)


class Manifest:
    def __init__(self, source=Source):
        self.source = source

    def parse(self, text):
        """Returns the outermost Unit of the text. Raises Invalid."""
        self.tokens = iter(self.source(io.StringIO(text)).tokens())
        if self.word() != "(":
            raise Invalid("a manifest begins with a parenthesis")
        unit = self.unit()
        if next(self.tokens, None) is not None:
            raise Invalid("there is text behind the last parenthesis")
        return unit

    def unit(self):
        """Reads from after a "(" to after its ")", and each nested unit in the same way."""
        unit = Unit(self.word(), self.word())
        while True:
            token = self.word()
            if token == ")":
                return unit
            if token == "(":
                unit.units.append(self.unit())
            else:
                unit.goods.append((token, self.word()))

    def word(self):
        token = next(self.tokens, None)
        if token is None:
            raise Invalid("the text ends too early")
        return self.source(token).text
