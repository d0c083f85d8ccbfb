"""Reads a pprof file, gzipped or not: a recording, or the file of another tool, whose sample types
become kinds. The file is foreign data, so what is kept of it is bounded (probescope.command.bounds).
"""

from __future__ import annotations

import json
import re
import zlib
from typing import IO, Any, Dict, List, NamedTuple, NoReturn, Optional, Tuple, Union

from probescope.command.bounds import RECORDING_BYTES, RECORDING_DEPTH, RECORDING_PARTS
from probescope.command.errors import Usage
from probescope.command.own_code import Frame
from probescope.profile import metadata, pprof_writer
from probescope.profile.protobuf import Malformed, Value, fields, numbers, signed, varint
from probescope.profile.recording import Kind, Recording

GZIP = b"\x1f\x8b"
NEXT_STEP = "a .pb.gz file of `probescope record`, or a pprof file of another tool"
VERSION = re.compile(rf"{pprof_writer.MARK} ([0-9]{{1,9}})")
# Bounds of a recording's parts: those of the gem.
MOST_NODES, MOST_KINDS, MOST_SERIES, MOST_BUCKETS = 1 << 22, 1 << 4, 1 << 17, 1 << 17
# The largest number of a field in the messages.
KNOWN = 7
# Bytes of the largest number in the file.
NUMBER_BYTES = 10
# Bytes of a file that are read at once.
PART = 1 << 16
# The number at the begin of a thread's label.
THREAD = re.compile("[0-9]{1,18}")


class Location(NamedTuple):
    """lines: (function, number), the innermost one first."""

    mapping: int
    lines: List[Tuple[int, int]]


class Sample(NamedTuple):
    """locations: packed."""

    locations: bytes
    figures: List[int]
    labels: Dict[str, Union[str, int]]


def read(path: str) -> Recording:
    try:
        return _Reader(path).read()
    except (Malformed, zlib.error) as error:
        raise Usage(f"{path} is no recording: {error}", NEXT_STEP) from None
    except OSError as error:
        raise Usage(f"cannot read {path}: {error.strerror}", NEXT_STEP) from None


def _fields(value: Value) -> Dict[int, Value]:
    """The known fields of a message, the last value of each."""
    return {field: one for field, one in fields(_message(value)) if field <= KNOWN}


def _message(value: Value) -> bytes:
    return value if isinstance(value, bytes) else _malformed("a number in place of a message")


def _integer(value: Value) -> int:
    return value if isinstance(value, int) else _malformed("bytes in place of a number")


def _malformed(text: str) -> NoReturn:
    raise Malformed(text)


def _too_deep() -> NoReturn:
    _malformed(f"a stack of more than {RECORDING_DEPTH} frames")


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        head = file.read(2)
        if head[:1] in (b"<", b"{") or path.endswith(".collapsed"):
            kind = "page" if head[:1] == b"<" else "file of that format"
            raise Usage(f"a {kind} cannot be read back: {path}", "convert the .pb.gz")
        file.seek(0)
        return _inflated(file) if head == GZIP else _plain(file)


def _plain(file: IO[bytes]) -> bytes:
    found = bytearray()
    while True:
        part = file.read(PART)
        if not part:
            return bytes(found)
        found += part
        _bounded(found)


def _inflated(file: IO[bytes]) -> bytes:
    """A small file that unpacks to an endless one ends at the bound. A file may have several members, one
    behind the other.
    """
    found, part = bytearray(), file.read(PART)
    while part:
        inflate = zlib.decompressobj(zlib.MAX_WBITS + 16)
        while not inflate.eof:
            if not part:
                _malformed("it is cut off")
            found += inflate.decompress(part, 1 << 20)
            _bounded(found)
            part = inflate.unconsumed_tail or (b"" if inflate.eof else file.read(PART))
        part = inflate.unused_data or file.read(PART)
    return bytes(found)


def _bounded(data: bytearray) -> None:
    if len(data) > RECORDING_BYTES:
        _malformed(f"it has more than {RECORDING_BYTES >> 20} MiB")


class _Reader:
    def __init__(self, path: str) -> None:
        self._path = path
        self._types: List[Tuple[int, int]] = []
        self._texts: List[str] = []
        self._comments: List[int] = []
        self._mappings: Dict[int, int] = {}
        self._locations: Dict[int, Location] = {}
        self._functions: Dict[int, Tuple[int, int, int]] = {}
        self._numbers: Dict[int, int] = {}
        self._parts = 0
        self._nodes: Dict[bytes, int] = {b"": 0}
        self._frames: Dict[int, List[int]] = {}
        self._labels: Dict[bytes, Tuple[str, Union[str, int]]] = {}

    def read(self) -> Recording:
        data = _content(self._path)
        self._parse(data)
        told = self._told()
        kinds = self._kinds_of(told)
        self._recording = Recording(kinds, told)
        self._recording.begin_ns = self._numbers.get(pprof_writer.TIME_NANOS, 0)
        self._recording.duration_ns = self._numbers.get(pprof_writer.DURATION_NANOS, 0)
        for field, value in fields(data):
            if field == pprof_writer.SAMPLE:
                sample = self._sample(value)
                if self._recording.foreign:
                    self._foreign(sample)
                else:
                    self._recorded(sample)
        return self._recording

    def _parse(self, data: bytes) -> None:
        """Reads the fields of the profile but samples, whose texts may come later. Unknown fields are
        ignored.
        """
        for field, value in fields(data):
            self._part()
            if field == pprof_writer.SAMPLE_TYPE:
                found = _fields(value)
                self._types.append((_integer(found.get(1, 0)), _integer(found.get(2, 0))))
            elif field == pprof_writer.MAPPING:
                found = _fields(value)
                self._mappings[_integer(found.get(1, 0))] = _integer(found.get(5, 0))
            elif field == pprof_writer.LOCATION:
                self._location(value)
            elif field == pprof_writer.FUNCTION:
                found = _fields(value)
                name, path, defined = (_integer(found.get(key, 0)) for key in (2, 4, 5))
                self._functions[_integer(found.get(1, 0))] = name, path, defined
            elif field == pprof_writer.TEXT:
                self._texts.append(_message(value).decode(errors="replace"))
            elif field == pprof_writer.COMMENT:
                if len(self._comments) < 2:  # only these have a meaning
                    self._comments += numbers(value, RECORDING_PARTS)
            elif field in (pprof_writer.TIME_NANOS, pprof_writer.DURATION_NANOS):
                self._numbers[field] = _integer(value)
        if not self._types:
            _malformed("it has no sample type")

    def _part(self) -> None:
        """Counts a part that is kept in memory."""
        self._parts += 1
        if self._parts > RECORDING_PARTS:
            _malformed(f"it has more than {RECORDING_PARTS} parts")

    def _location(self, data: Value) -> None:
        index = mapping = 0
        lines = []
        for field, value in fields(_message(data)):
            if field == 1:
                index = _integer(value)
            elif field == 2:
                mapping = _integer(value)
            elif field == 4:
                self._part()
                found = _fields(value)
                lines.append((_integer(found.get(1, 0)), signed(_integer(found.get(2, 0)))))
        self._locations[index] = Location(mapping, lines)

    def _sample(self, data: Value) -> Sample:
        locations = bytearray()
        figures: List[int] = []
        labels = {}
        for field, value in fields(_message(data)):
            if field == 1:
                locations += varint(value) if isinstance(value, int) else value
            elif field == 2:
                figures += map(signed, numbers(value, len(self._types)))
                if len(figures) > len(self._types):
                    _malformed("a sample with more figures than sample types")
            elif field == 3 and not self._recording.foreign:
                key, told = self._label(_message(value))
                labels[key] = told
        if len(locations) > RECORDING_DEPTH * NUMBER_BYTES:
            _too_deep()
        return Sample(bytes(locations), figures, labels)

    def _text(self, index: int) -> str:
        return self._texts[index] if index < len(self._texts) else _malformed("a text that is not there")

    def _told(self) -> Dict[str, Any]:
        """Returns the metadata of a recording; empty for the file of another tool."""
        comments = [self._text(index) for index in self._comments[:2]]
        version = VERSION.fullmatch(comments[0]) if comments else None
        if not version:
            return {}
        if int(version[1]) > pprof_writer.VERSION:
            raise Usage(f"{self._path} was made by a newer probescope", "update the command")
        try:
            found = json.loads(comments[1] if len(comments) > 1 else "")
            # Raises for what is no JSON elsewhere: NaN, and half of a surrogate pair.
            json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError):
            _malformed("its metadata are no JSON")
        if not isinstance(found, dict):
            _malformed("its metadata are no object")
        name = metadata.wrong(found)
        return found if name is None else _malformed(f"its metadata have no valid {name}")

    def _kinds_of(self, told: Dict[str, Any]) -> List[Kind]:
        """Returns the kinds of the file: as its metadata say, otherwise one for each sample type."""
        types = [(self._text(one), self._text(unit)) for one, unit in self._types]
        kinds = [_kind(one) for one in told["kinds"]] if told else [Kind(one[0], one) for one in types]
        if not kinds:
            _malformed("it has no kind")
        if len(kinds) >= MOST_KINDS:
            _malformed("it has too many kinds")
        self._places = {
            kind.name: [
                types.index(one) if one in types else None for one in (kind.counts, kind.weighs, kind.looked)
            ]
            for kind in kinds
        }
        self._indexes = {kind.name: index for index, kind in enumerate(kinds)}
        return kinds

    def _foreign(self, sample: Sample) -> None:
        series = self._recording.series_number(0, 0, None)
        for kind, value in enumerate(sample.figures[: len(self._recording.kinds)]):
            if value:
                self._recording.add((0, series, kind, self._node(sample.locations)), 0, value, 0)

    def _recorded(self, sample: Sample) -> None:
        labels = sample.labels
        kind = labels.get("kind")
        if not isinstance(kind, str) or kind not in self._places:  # of a later version
            return
        times, weight, looked = (
            sample.figures[place] if place is not None and place < len(sample.figures) else None
            for place in self._places[kind]
        )
        bucket = _number(labels, "at") // self._recording.bucket_ns
        if bucket >= MOST_BUCKETS:
            _malformed("it is too long")
        thread = THREAD.match(str(labels.get("thread", "")))
        request = str(labels["request"]) if "request" in labels else None
        series = self._recording.series_number(
            _number(labels, "pid"), int(thread[0]) if thread else 0, request
        )
        if series >= MOST_SERIES:
            _malformed("it has too many threads")
        key = bucket, series, self._indexes[kind], self._node(sample.locations)
        self._recording.add(key, times or 0, weight or 0, (times or 0) if looked is None else looked)

    def _label(self, data: bytes) -> Tuple[str, Union[str, int]]:
        """Returns a key, and a text or a number."""
        found = self._labels.get(data)
        if not found:
            self._part()
            told = _fields(data)
            text = _integer(told.get(2, 0))
            value: Union[str, int] = self._text(text) if text else _integer(told.get(3, 0))
            found = self._labels[data] = self._text(_integer(told.get(1, 0))), value
        return found

    def _node(self, packed: bytes) -> int:
        """Returns the node for packed locations."""
        node = self._nodes.get(packed)
        if node is not None:
            return node
        node = depth = 0
        for index in reversed(numbers(packed, RECORDING_DEPTH)):
            frames = self._frames_of(index)
            depth += len(frames)
            if depth > RECORDING_DEPTH:
                _too_deep()
            for frame in reversed(frames):
                node = self._recording.child(node, frame)
                if node >= MOST_NODES:
                    _malformed("it has too many call paths")
        self._nodes[packed] = node
        return node

    def _frames_of(self, index: int) -> List[int]:
        """Returns the numbers of a location's frames, the innermost one first."""
        if index not in self._frames:
            location = self._locations.get(index) or _malformed("a location that is not there")
            own, what = self._whose(location)
            lines = [self._frame(*line, own, what) for line in location.lines]
            lines = lines or [Frame("(unknown)", "", 0, 0, False, False)]
            self._frames[index] = [self._recording.frame(frame) for frame in lines]
        return self._frames[index]

    def _whose(self, location: Location) -> Tuple[bool, bool]:
        if self._recording.foreign:
            return False, False
        name = self._text(self._mappings.get(location.mapping, 0))
        return name == pprof_writer.MAPPINGS[0], name == pprof_writer.MAPPINGS[2]

    def _frame(self, function: int, line: int, own: bool, what: bool) -> Frame:
        found = self._functions.get(function) or _malformed("a function that is not there")
        name, path, defined = found
        return Frame(self._text(name), self._text(path), line, signed(defined), own, what)


def _number(labels: Dict[str, Union[str, int]], key: str) -> int:
    value = labels.get(key, 0)
    return value if isinstance(value, int) else _malformed(f"a label {key} that is a text")


def _kind(one: Dict[str, Any]) -> Kind:
    looked: Optional[List[str]] = one.get("looked")
    return Kind(
        one["name"],
        (one["weighs"][0], one["weighs"][1]),
        (one["counts"][0], one["counts"][1]),
        (looked[0], looked[1]) if looked else None,
    )
