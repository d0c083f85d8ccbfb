"""Recordings of the wheel are those of the gem: the fixtures are the gem's (spec/profile)."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from probescope.command.errors import Usage
from probescope.command.main import main
from probescope.command.stack_lines import StackLines
from probescope.profile import pprof_reader
from probescope.profile.destination import Destination
from probescope.profile.recorder import Recorder
from probescope.profile.recording import KINDS
from probescope.profile.tables import Tables

FIXTURES = Path(__file__).parent.parent / "spec" / "fixtures" / "profile"
METADATA = {
    "schema": 1,
    "probescope": "0.1.0",
    "kinds": [kind.described() for kind in KINDS],
    "duration": 2.0,
    "by_request": False,
    "begin": "2023-11-14T22:13:20.000000Z",
    "end": "2023-11-14T22:13:22.000000Z",
    "seconds": 2.0,
    "bucket_ns": 10**9,
    "processes": [
        {
            "pid": 7,
            "runtime": "ruby",
            "version": "3.1.2",
            "begin": "2023-11-14T22:13:20.000000Z",
            "end": "2023-11-14T22:13:22.000000Z",
            "seconds": 2.0,
            "cpu_share": 0.55,
            "looking_share": 0.007273,
            "left_out": None,
            "wall_ns": 2 * 10**9,
            "cpu_ns": 1_100_000_000,
            "threads": {"71": "puma srv tp 001"},
        }
    ],
    "looking_share": 0.007273,
    "own": {"by": "process", "globs": []},
    "lost": {"events": 0, "rows": 2, "samples": 1, "paths": 0},
    "truncated": [],
    "not_covered": [],
    "warnings": [],
    "interrupted": False,
    "ended": False,
}


def shop(lines=None, **bounds):
    recorder = Recorder(KINDS, **bounds)
    stacks = StackLines(recorder, 7, lambda threads: None)
    for line in lines or (FIXTURES / "shop.lines").read_text().splitlines():
        stacks.receive(line)
    recording = recorder.recording(dict(METADATA))
    recording.begin_ns, recording.duration_ns = 1_700_000_000 * 10**9, 2 * 10**9
    return recorder, recording


def written(recording, path):
    Destination(str(path), force=True).write(recording)
    return path


def test_files_are_those_of_the_gem(tmp_path):
    _, recording = shop()
    packed = written(recording, tmp_path / "a.pb.gz").read_bytes()
    assert gzip.decompress(packed) == (FIXTURES / "shop.pb").read_bytes()
    collapsed = written(recording, tmp_path / "a.collapsed").read_bytes()
    assert collapsed == (FIXTURES / "shop.collapsed").read_bytes()
    speedscope = json.loads(written(recording, tmp_path / "a.speedscope.json").read_text())
    assert {**speedscope, "exporter": "probescope@VERSION"} == json.loads(
        (FIXTURES / "shop.speedscope.json").read_text()
    )


def test_a_recording_is_the_same_after_it_was_read_back(tmp_path):
    _, recording = shop()
    again = pprof_reader.read(str(written(recording, tmp_path / "a.pb.gz")))
    assert again.metadata == recording.metadata
    for by in ("own", "self", "total"):
        assert Tables(again, by, 0).fields() == Tables(recording, by, 0).fields()


def test_the_file_of_the_first_version_can_be_read():
    assert pprof_reader.read(str(FIXTURES / "0.1.0.pb.gz")).total(0) == (110, 1_100_000_000, 110)


def test_too_many_figures_are_merged_and_no_sum_changes():
    lines = ["= 7 1 0 1000000000 0 0 0 0 0 0"]
    for i in range(100):
        lines.append(f"f 7 {len(lines) + 1} {i + 1} {i // 2} 1 1 0 0\tf{i}")
    for second in range(8):
        for thread in range(10):
            for i in range(100):
                lines.append(f"s 7 {len(lines) + 1} 1 {i + 1} {thread + 1} 0 1 {i + 1} 1")
        lines.append(f"= 7 {len(lines) + 1} {second + 1} {(second + 2) * 10**9} 1000000000 1 0 0 0 1")
    for bound, steps in {10_000: 0, 4000: 1, 1200: 1, 800: 1, 20: 3}.items():
        recorder, recording = shop(lines, most_cells=bound)
        assert recording.total(0) == (8000, 8 * 10 * 5050, 8000)
        assert len(recorder) <= bound
        assert len(recorder.truncated) == steps
    recorder, recording = shop(lines, most_nodes=20)
    assert recording.total(0) == (8000, 8 * 10 * 5050, 8000)
    assert "(more paths)" in recorder.truncated[0]


def test_what_is_no_recording_is_refused(tmp_path):
    whole = (FIXTURES / "shop.pb").read_bytes()
    path = tmp_path / "a.pb.gz"
    for data in (b"", b"\x1f\x8bcut", b"<html>", b'{"a":1}', b"\xff" * 11, b"\x0a\x7fabc"):
        path.write_bytes(data)
        with pytest.raises(Usage):
            pprof_reader.read(str(path))
    dice = random.Random(21)
    for i in range(80):
        data = bytearray(whole[: dice.randrange(len(whole))] if i % 2 else whole)
        for _ in range(0 if i % 2 else 3):
            data[dice.randrange(len(data))] = dice.randrange(256)
        path.write_bytes(data)
        try:
            Tables(pprof_reader.read(str(path)), "own", 10).lines()
        except Usage:
            continue


def test_convert_and_diff_print_tables_and_write_files(tmp_path, capsys):
    path = str(FIXTURES / "0.1.0.pb.gz")
    assert main(["convert", path, "--by", "self"]) == 0
    assert "JSON.parse" in capsys.readouterr().out
    assert main(["diff", path, path, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["changed"] for row in told["kinds"][0]["rows"]] == [False] * 4
    page = tmp_path / "a.html"
    assert main(["convert", path, "-o", str(page)]) == 0
    assert main(["convert", path, "-o", str(page)]) == 2
    assert "exists" in capsys.readouterr().err
    assert '<script type="application/octet-stream" id="data">' in page.read_text()
    assert main(["convert", path, "--own", "gems/*", "--own", "nowhere.rb"]) == 0
    told = capsys.readouterr()
    assert "no file matches --own nowhere.rb" in told.err
    assert "outside of the application" in told.out
