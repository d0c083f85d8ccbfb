"""Writes a Recording in pprof's format, gzipped:
https://github.com/google/pprof/blob/main/proto/profile.proto.

It is the one format that pprof_reader reads back. docs/reference/recordings.md describes what is added
to it. Gem and wheel write the same bytes before compression.
"""

from __future__ import annotations

import gzip
import json
from typing import IO, Any, Dict, Iterator, List, Optional

from probescope.command.own_code import Frame
from probescope.profile.protobuf import bytes_, number, varint
from probescope.profile.recording import Recording, Series, Type

# The first comment of a file; the second one has the metadata.
MARK = "probescope recording"
VERSION = 1
# ns between two samples of a thread, at 99 Hz.
PERIOD = 10_101_010
# The mapping of a location says whose code it is.
MAPPINGS = ("(application)", "(libraries)", "(what)")
APPLICATION, LIBRARIES, WHAT = 1, 2, 3

# Fields of the messages.
SAMPLE_TYPE, SAMPLE, MAPPING, LOCATION, FUNCTION, TEXT = 1, 2, 3, 4, 5, 6
TIME_NANOS, DURATION_NANOS, PERIOD_TYPE, PERIOD_FIELD, COMMENT, DEFAULT_TYPE = 9, 10, 11, 12, 13, 14


def write(recording: Recording, file: IO[bytes], kind: int = 0) -> None:
    """kind: for formats with one kind."""
    with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:
        for part in _Writer(recording).message():
            packed.write(part)


class _Writer:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._texts: Dict[str, int] = {"": 0}
        self._kinds = recording.kinds
        # Type and unit of each value of a sample.
        self._types: List[Type] = [one for kind in self._kinds for one in kind.types]

    def message(self) -> Iterator[bytes]:
        """Yields the bytes of the profile in pieces. The texts come last, when all are known."""
        for one in self._types:
            yield bytes_(SAMPLE_TYPE, self._value_type(one))
        for index, name in enumerate(MAPPINGS):
            yield bytes_(MAPPING, number(1, index + 1) + number(5, self._text(name)))
        yield from self._functions_and_locations()
        yield from self._samples()
        yield from self._rest()
        for text in self._texts:
            yield bytes_(TEXT, text.encode())

    def _text(self, value: str) -> int:
        return self._texts.setdefault(value, len(self._texts))

    def _value_type(self, one: Type) -> bytes:
        return number(1, self._text(one[0])) + number(2, self._text(one[1]))

    def _functions_and_locations(self) -> Iterator[bytes]:
        """A frame has a location of its own."""
        functions: Dict[Any, int] = {}
        for index, frame in enumerate(self._recording.frames):
            key = frame.function, frame.path, frame.defined
            if key not in functions:
                functions[key] = len(functions) + 1
                yield bytes_(FUNCTION, self._function(functions[key], frame))
            line = number(1, functions[key]) + number(2, frame.line)
            mapping = WHAT if frame.what else APPLICATION if frame.own else LIBRARIES
            yield bytes_(LOCATION, number(1, index + 1) + number(2, mapping) + bytes_(4, line))

    def _function(self, index: int, frame: Frame) -> bytes:
        name, path = self._text(frame.function), self._text(frame.path)
        return number(1, index) + number(2, name) + number(4, path) + number(5, frame.defined)

    def _samples(self) -> Iterator[bytes]:
        labels: Dict[int, bytes] = {}
        moments: Dict[int, bytes] = {}
        names = [self._label("kind", kind.name) for kind in self._kinds]
        keys = self._recording.keys_by_node()
        for node, locations in self._nodes():
            for key in keys.get(node, ()):
                bucket, series, kind, _ = key
                figures = self._values(kind, *self._recording.figures(key))
                if series not in labels:
                    labels[series] = self._labels(self._recording.series[series])
                told = labels[series] + names[kind]
                if bucket not in moments:
                    at = bucket * self._recording.bucket_ns
                    moments[bucket] = self._number_label("at", at, "nanoseconds")
                yield bytes_(SAMPLE, bytes_(1, locations) + figures + told + moments[bucket])

    def _nodes(self) -> Iterator[Any]:
        """Yields each node with its packed locations, the innermost one first. Nodes are visited depth
        first, and the locations of a node are kept as long as functions that it calls are to come.
        """
        children: Dict[int, List[int]] = {}
        for node, parent in enumerate(self._recording.parents):
            if node:
                children.setdefault(parent, []).append(node)
        todo = [(0, b"")]
        while todo:
            node, callers = todo.pop()
            locations = varint(self._recording.node_frames[node] + 1) + callers if node else b""
            yield node, locations
            for child in reversed(children.get(node, ())):
                todo.append((child, locations))

    def _values(self, kind: int, times: int, weight: int, looked: int) -> bytes:
        """The values of a sample, with zeros for the other kinds."""
        one = self._kinds[kind]
        given = ((one.counts, times), (one.weighs, weight), (one.looked, looked))
        mine = [value for type_, value in given if type_]
        before = sum(len(other.types) for other in self._kinds[:kind])
        after = len(self._types) - before - len(mine)
        return bytes_(2, b"\0" * before + b"".join(map(varint, mine)) + b"\0" * after)

    def _labels(self, series: Series) -> bytes:
        found = self._number_label("pid", series.pid)
        if series.thread_id:
            found += self._label("thread", self._recording.thread_name(series))
        return found + (self._label("request", series.request) if series.request else b"")

    def _label(self, key: str, value: str) -> bytes:
        return bytes_(3, number(1, self._text(key)) + number(2, self._text(value)))

    def _number_label(self, key: str, value: int, unit: Optional[str] = None) -> bytes:
        if not value:
            return b""
        told = number(1, self._text(key)) + number(3, value)
        return bytes_(3, told + (number(4, self._text(unit)) if unit else b""))

    def _rest(self) -> Iterator[bytes]:
        recording = self._recording
        yield number(TIME_NANOS, recording.begin_ns)
        yield number(DURATION_NANOS, recording.duration_ns)
        if any(kind.name == "cpu" for kind in recording.kinds):
            yield bytes_(PERIOD_TYPE, self._value_type(("cpu", "nanoseconds"))) + number(PERIOD_FIELD, PERIOD)
        if not recording.foreign:
            told = json.dumps(recording.metadata, ensure_ascii=False, separators=(",", ":"))
            for comment in (f"{MARK} {VERSION}", told):
                yield number(COMMENT, self._text(comment))
        yield number(DEFAULT_TYPE, self._text(recording.kinds[0].weighs[0]))
