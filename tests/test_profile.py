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
        passed = second + 1
        lines.append(f"= 7 {len(lines) + 1} {passed} {(passed + 1) * 10**9} {passed * 10**9} 1 0 0 0 1")
    for bound, steps in {10_000: 0, 4000: 1, 1200: 1, 800: 1, 20: 3}.items():
        recorder, recording = shop(lines, most_cells=bound)
        assert recording.total(0) == (8000, 8 * 10 * 5050, 8000)
        assert len(recorder) <= bound
        assert len(recorder.truncated) == steps
    recorder, recording = shop(lines, most_nodes=20)
    assert recording.total(0) == (8000, 8 * 10 * 5050, 8000)
    assert "(more paths)" in recorder.truncated[0]


def received(lines):
    """Returns the StackLines and the Recorder after these lines."""
    recorder = Recorder(KINDS)
    stacks = StackLines(recorder, 7, lambda threads: None)
    for line in lines:
        stacks.receive(line)
    stacks.rest()
    return stacks, recorder


@pytest.mark.parametrize(
    ("index", "wall", "cpu", "weight"),
    [(0, 2.0, 1.1, 1.1), (1, 2.0, 1.1, 1.1), (2, 1.0, 0.7, 0.7)],
    ids=["first", "middle", "last"],
)
def test_times_and_weights_are_known_though_the_end_of_a_second_was_lost(index, wall, cpu, weight):
    lines = (FIXTURES / "shop.lines").read_text().splitlines()
    lost = [line for line in lines if line.startswith("=")][index]
    stacks, recorder = received([line for line in lines if line != lost])
    assert (stacks.wall_ns, stacks.cpu_ns) == (round(wall * 1e9), round(cpu * 1e9))
    assert stacks.end - stacks.began == stacks.wall_ns
    assert stacks.weights == {1: round(weight * 1e9)}
    assert recorder.recording(dict(METADATA)).total(0)[1] == round(weight * 1e9)


def test_a_caller_without_a_name_is_counted():
    lines = (FIXTURES / "shop.lines").read_text().splitlines()
    _, recorder = received([line for line in lines if not line.startswith("f 7 16 ")])
    assert recorder.lost_paths == 1


def test_no_path_has_more_frames_than_a_process_can_have():
    chain = [f"f 7 {i + 2} {i + 1} {i + 2} 1 1 0 0\tf{i + 1}" for i in range(20_000)]
    end = ["s 7 20002 1 1 71 0 1 1000000 1", "= 7 20003 1 2000000000 1000000000 1 0 0 0 1"]
    _, recorder = received(["= 7 1 0 1000000000 0 0 0 0 0 0", *chain, *end])
    recording = recorder.recording(dict(METADATA))
    assert len(recording.parents) <= 301
    assert recording.total(0) == (1, 1_000_000, 1)


def test_names_and_threads_are_bounded():
    lines = ["= 7 1 0 1000000000 0 0 0 0 0 0", "f 7 2 1 0 1 1 0 0\tf"]
    lines += [f"s 7 {i + 3} 1 1 {i + 1} 0 1 {i + 1} 1" for i in range(10)]
    lines += ["= 7 13 1 2000000000 1000000000 1 0 0 0 1"]
    recorder, recording = shop(lines, most_series=5)
    assert recorder.truncated == ["threads are not told apart"]
    assert [one.thread_id for one in recording.series] == [0]
    assert recording.total(0) == (10, 55, 10)
    recorder, recording = shop(lines, most_cells=0)
    assert len(recorder) == 1
    assert recording.total(0) == (10, 55, 10)
    files = [f"p 7 {i + 2} {i}\t{'x' * 100}{i}" for i in range(1000)]
    recorder, _ = shop(["= 7 1 0 1000000000 0 0 0 0 0 0", *files], most_text=2000)
    assert len(recorder._paths) <= 21


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
    assert "--own nowhere.rb: no file matches" in told.err
    assert "outside of the application" in told.out
