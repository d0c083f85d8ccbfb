"""A deep recursive parser with two costly habits: the story of examples/deepstack.rb in Python.

    python examples/deepstack.py            # spends its CPU on exceptions that nobody sees
    python examples/deepstack.py --fixed    # checks first

A Source accepts a file or a str. Its author wrote a short test for that:

    try: self.text = text.getvalue()
    except AttributeError: self.text = text

For a str this raises an AttributeError and discards it: thousands a second, and none in a log.

The other habit does show in a log. A document may have a weight. If a word is not a number, it has
none, which is logged with exc_info=True. The traceback is as long as the document is deep, and its
formatting takes more time than all of the parsing. A tracer shows the cost of each habit:

    PROBESCOPE=1 python examples/deepstack.py
    sudo probescope exceptions -p PID
"""

import argparse
import io
import logging
import os
import signal
import threading
import time

log = logging.getLogger("deepstack")


class Source:
    """Text to parse: a file in memory or a str."""

    def __init__(self, text):
        try:
            self.text = text.getvalue()
        except AttributeError:
            self.text = text

    def words(self):
        return self.text.split()


class FixedSource(Source):
    """The same, without the exception."""

    def __init__(self, text):
        self.text = text.getvalue() if hasattr(text, "getvalue") else text


class Parser:
    """ "(1 2 (3))" -> ["1", "2", ["3"]], a recursion for each list."""

    def __init__(self, source_class):
        self.source_class = source_class
        # Number of Sources made from a str. Without --fixed each raised an AttributeError.
        self.strings = 0

    def parse(self, file):
        return self.parse_list(self.source_class(file).text, 1)[0]

    def parse_list(self, text, position):
        """Reads from after a "(" to after its ")". Returns the list and that position."""
        found = []
        while True:
            stop = min(at for at in (text.find("(", position), text.find(")", position)) if at >= 0)
            found += self.parse_words(text[position:stop])
            if text[stop] == ")":
                return found, stop + 1
            inner, position = self.parse_list(text, stop + 1)
            found.append(inner)

    def parse_words(self, text):
        return [self.source(word).text for word in self.source(text).words()]

    def source(self, text):
        self.strings += 1
        return self.source_class(text)


def weigh(parsed):
    """Sum of the words of a document. Raises ValueError if one is not a number."""
    total = 0
    for item in parsed:
        total += weigh(item) if isinstance(item, list) else int(item)
    return total


def weight(parsed):
    """The same, but returns None for a document without a weight."""
    try:
        return weigh(parsed)
    except ValueError:
        log.warning("a document has no weight", exc_info=True)
        return None


def fixed_weight(parsed):
    """The same with a check first, and without a traceback that nobody reads."""
    if not weighable(parsed):
        log.warning("a document has no weight")
        return None
    return weigh(parsed)


def weighable(parsed):
    return all(weighable(item) if isinstance(item, list) else item.isdigit() for item in parsed)


def document(depth):
    """ "(0 1 2 (0 1 2 (...)))": a few words a level, most at the bottom; the last is not a number."""
    return "(0 1 2 " * depth + " ".join(map(str, range(80))) + " n/a" + ")" * depth


class EmptyBacktrace(logging.Formatter):
    """Formats no traceback."""

    def formatException(self, exc_info):
        return ""


class Turns:
    """--differential: the same exceptions are logged, but in every second turn without a
    traceback. This saves the cost of formatting, which is the truth for a tracer's figure. Turns are
    short, so that a slow machine, or a slow process, affects both kinds alike."""

    DOCUMENTS = 10

    def __init__(self, handler):
        self.handler = handler
        self.formatters = logging.Formatter(), EmptyBacktrace()
        # CPU seconds so far: of the turns with tracebacks, and of those without.
        self.spent = [0.0, 0.0]
        self.kind = 0
        self.started = time.process_time()

    def change(self):
        """Ends a turn and begins one of the other kind. True after equal numbers of both."""
        now = time.process_time()
        self.spent[self.kind] += now - self.started
        self.started = now
        self.kind = 1 - self.kind
        self.handler.setFormatter(self.formatters[self.kind])
        return self.kind == 0


def options():
    parser = argparse.ArgumentParser(description="Ctrl-C stops it, kill -USR1 prints its counters.")
    add = parser.add_argument
    add("--fixed", action="store_true", help="ask first instead of catching")
    add(
        "--differential",
        action="store_true",
        help="take turns: log as always, and with an empty traceback; count the CPU time of each",
    )
    add("--depth", type=int, default=45, metavar="N", help="nesting of the documents (%(default)s)")
    add("--documents", type=float, default=float("inf"), metavar="N", help="stop after N documents")
    add("--seconds", type=float, metavar="S", help="stop after S seconds")
    add("--log", default=os.devnull, metavar="FILE", help="where the log goes (%(default)s)")
    return parser.parse_args()


def main():
    chosen = options()
    handler = logging.FileHandler(chosen.log)
    log.addHandler(handler)
    turns = Turns(handler) if chosen.differential else None
    log.propagate = False

    parser = Parser(FixedSource if chosen.fixed else Source)
    weigh_it = fixed_weight if chosen.fixed else weight
    text, documents = document(chosen.depth), 0
    started = time.process_time(), time.monotonic()

    def report():
        cpu, wall = time.process_time() - started[0], time.monotonic() - started[1]
        raises = 0 if chosen.fixed else parser.strings
        each_kind = f" full={turns.spent[0]:.3f}s empty={turns.spent[1]:.3f}s" if turns else ""
        print(f"documents={documents} raises={raises} cpu={cpu:.3f}s wall={wall:.3f}s{each_kind}", flush=True)

    # A signal may come in the middle of a write, so the handler only sets a flag.
    word = {"stop": False, "report": False}
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: word.update(stop=True))
    signal.signal(signal.SIGUSR1, lambda *_: word.update(report=True))
    if chosen.seconds:
        timer = threading.Timer(chosen.seconds, word.update, kwargs={"stop": True})
        timer.daemon = True
        timer.start()
    print(f"deepstack: pid {os.getpid()}, {chosen.depth} levels deep\nready", flush=True)

    while not word["stop"] and documents < chosen.documents:
        weigh_it(parser.parse(io.StringIO(text)))
        documents += 1
        both_done = not turns or (documents % Turns.DOCUMENTS == 0 and turns.change())
        if word["report"] and both_done:
            word["report"] = False
            report()
    report()


if __name__ == "__main__":
    main()
