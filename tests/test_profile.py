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
from probescope.profile import pprof_reader, protobuf
from probescope.profile.destination import Destination
from probescope.profile.diff import Diff
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


def refused(path, data):
    path.write_bytes(data)
    with pytest.raises(Usage) as error:
        pprof_reader.read(str(path))
    return str(error.value)


def of_the_fixture(old, new):
    """Returns the fixture with a text of it replaced."""
    found = b""
    for field, value in protobuf.fields((FIXTURES / "shop.pb").read_bytes()):
        if isinstance(value, int):
            found += protobuf.number(field, value)
        else:
            found += protobuf.bytes_(field, value.replace(old, new) if field == 6 else value)
    return found


def sample(*locations):
    """A sample of cpu: the texts of the fixture have the label's key and value."""
    texts = [value for field, value in protobuf.fields((FIXTURES / "shop.pb").read_bytes()) if field == 6]
    label = protobuf.number(1, texts.index(b"kind")) + protobuf.number(2, texts.index(b"cpu"))
    packed = b"".join(map(protobuf.varint, locations))
    return protobuf.bytes_(2, protobuf.bytes_(1, packed) + protobuf.bytes_(3, label))


def test_what_is_larger_than_the_bounds_is_refused(tmp_path, monkeypatch):
    whole, path = (FIXTURES / "shop.pb").read_bytes(), tmp_path / "a.pb.gz"
    for lines, locations in ((5000, [90]), (3000, [90, 90]), (1, [90] * 5000)):
        location = protobuf.bytes_(4, protobuf.number(1, 90) + line_of(1) * lines)
        assert "more than 4096" in refused(path, whole + location + sample(*locations))
    many = protobuf.bytes_(2, protobuf.bytes_(2, b"\1" * 1000))
    assert "more than 2 numbers" in refused(path, whole + many)
    monkeypatch.setattr(pprof_reader, "RECORDING_PARTS", 1000)
    labels = b"".join(protobuf.bytes_(3, protobuf.number(3, i + 1)) for i in range(2000))
    for more in (b"\x12\0" * 2000, b"\x32\0" * 2000, protobuf.bytes_(4, b"\x22\0" * 2000)):
        assert "more than 1000 parts" in refused(path, whole + more)
    assert "more than 1000 parts" in refused(path, whole + protobuf.bytes_(2, labels))


def test_numbers_that_are_too_large_are_refused(tmp_path):
    path, large = tmp_path / "a.pb.gz", b"1" + b"0" * 400
    for old in (b'"bucket_ns":1000000000', b'"wall_ns":2000000000', b'"seconds":2.0', b'"rows":2'):
        data = of_the_fixture(old, old.split(b":")[0] + b":" + large)
        assert "its metadata" in refused(path, data)
    for old, new in ((b'"wall_ns":2000000000', b'"wall_ns":{}'), (b'"begin":"2023', b'"begin":"9999')):
        assert "its metadata" in refused(path, of_the_fixture(old, new))
    location = protobuf.bytes_(4, protobuf.number(1, 90) + line_of(90))
    function = protobuf.bytes_(5, protobuf.number(1, 90) + protobuf.number(2, (1 << 64) - 1))
    whole = (FIXTURES / "shop.pb").read_bytes()
    assert "a text that is not there" in refused(path, whole + function + location + sample(90))
    path.write_bytes(of_the_fixture(b"71 puma srv tp 001", b"1" + b"0" * 5000 + b" worker"))
    assert 10**17 in [one.thread_id for one in pprof_reader.read(str(path)).series]


def line_of(function):
    return protobuf.bytes_(4, protobuf.number(1, function))


def test_all_members_of_a_gzip_file_are_read(tmp_path):
    whole, path = (FIXTURES / "shop.pb").read_bytes(), tmp_path / "a.pb.gz"
    parts = gzip.compress(whole[:700]) + gzip.compress(whole[700:])
    path.write_bytes(parts)
    assert pprof_reader.read(str(path)).total(0) == (110, 1_100_000_000, 110)
    assert "no recording" in refused(path, parts + b"\0more")


def test_no_escape_sequences_of_a_file_are_printed(tmp_path, capsys):
    path = tmp_path / "a.pb.gz"
    for old, new in (
        (b"probescope recording 1", b"recording of a tool 12"),
        (b'"name":"cpu"', rb'"name":"\u001b[2Jcpu"'),
        (b'"truncated":[]', rb'"truncated":["\u001b[2J"]'),
    ):
        data = of_the_fixture(old, new)
        if b"of a tool" in new:
            path.write_bytes(data)
            data = data.replace(b"\x32\x03cpu", b"\x32\x0dc\x1b]52;c;aGk=\a")
        path.write_bytes(data)
        assert main(["convert", str(path), "--by", "self"]) == 0
        assert main(["diff", str(path), str(path), "--per", "cpu", "--by", "self"]) == 0
        told = capsys.readouterr()
        assert not set("\x1b\a") & set(told.out + told.err)


def test_losses_are_in_the_tables():
    _, recording = shop()
    recording.metadata.update(
        lost={"events": 0, "rows": 2, "samples": 1, "paths": 4, "later": 3},
        truncated=["threads are not told apart"],
        warnings=["1 samples could not be taken"],
        not_covered=["waits"],
    )
    assert Tables(recording, "own", 10).lines()[2:9] == [
        "shortened: threads are not told apart",
        "2 events had no row of their own: the process's memory for names is full (see (overflow))",
        "1 samples could not be taken",
        "4 paths have no names: they were lost",
        "3 lost: later",
        "waits",
        "",
    ]


def test_a_choice_that_matches_no_file_changes_nothing():
    _, recording = shop()

    def own(*globs):
        recording.choose_own(list(globs))
        return {frame.path for frame in recording.frames if frame.own}, recording.metadata["own"]

    before = own()
    assert before == ({"/srv/shop/app.rb"}, {"by": "process", "globs": []})
    assert own("ap/*") == before
    assert own("shop/*", "gems/*")[1] == {"by": "glob", "globs": ["shop/*", "gems/*"]}
    assert own("!gems/*") == (
        {"/srv/shop/app.rb"},
        {"by": "glob", "globs": ["shop/*", "gems/*", "!gems/*"]},
    )


def seconds(count, pay, **bounds):
    """A recording of so many seconds, in each of which Shop#pay takes so many ms."""
    lines = ["= 7 1 0 1000000000 0 0 0 0 0 0", "p 7 2 100\t/srv/app.rb"]
    for second in range(count):
        for number, (name, ms) in enumerate((("Shop#pay", pay), ("Shop#list", 900))):
            lines.append(f"f 7 {len(lines) + 1} {number + 1} 0 5 1 1 100\t{name}")
            lines.append(f"s 7 {len(lines) + 1} 1 {number + 1} 71 0 {ms} {ms * 10**6} {ms}")
        passed = second + 1
        times = f"{(passed + 1) * 10**9} {passed * 10**9} {passed * 5 * 10**8}"
        lines.append(f"= 7 {len(lines) + 1} {passed} {times} 0 0 0 {passed * 40}")
    _, recording = shop(lines, **bounds)
    process = {**METADATA["processes"][0], "wall_ns": count * 10**9}
    recording.metadata["processes"] = [process]
    recording.duration_ns = count * 10**9
    return recording


@pytest.mark.parametrize("count", [20, 21, 25, 33, 41])
def test_a_function_that_is_the_same_in_each_second_has_changed(count):
    before, after = seconds(count, 100), seconds(count, 150)
    for late in (0, 20_000_000):
        after.duration_ns = count * 10**9 + late
        rows = Diff(before, after, "own", "time", 0.01).rows("cpu")
        assert [row.name for row in rows if row.changed] == ["Shop#pay"]


def test_options_without_a_meaning_are_refused(tmp_path, capsys):
    path, page = str(FIXTURES / "0.1.0.pb.gz"), str(tmp_path / "a.html")
    for words in (
        ["convert", path, "-o", page, "--json"],
        ["convert", path, "-o", page, "--by", "self"],
        ["convert", path, "-o", page, "--top", "0"],
        ["convert", path, "-o", page, "--kind", "cpu"],
        ["convert", path, "--kind", "cpu"],
        ["diff", path, path, "-o", page, "--json"],
        ["diff", path, path, "--min", "-5"],
        ["diff", path, path, "--min", "x"],
    ):
        assert main(words) == 2
        assert " is for " in capsys.readouterr().err or "--min" in words
    assert not list(tmp_path.iterdir())
    assert main(["diff", path, path, "--min", "5%"]) == 0
    told = capsys.readouterr()
    assert "the first recording has 2 spans of time, and 5 are needed" in told.err
    assert "changes cannot be told from chance" in told.out


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


def test_a_line_that_was_given_up_and_comes_late_is_lost():
    lines = StackLines(Recorder(KINDS), 7, lambda threads: None)
    for number in [*range(2, 4100), 1]:
        lines.receive(f"p 7 {number} {number}\t/srv/app.py")
    lines.rest()
    assert lines.numbered.missing == 1
