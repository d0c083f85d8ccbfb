"""The choice of the application's own code, on the cases that the gem has too."""

import json
from pathlib import Path

import pytest
from probescope.command.own_code import Frame, choose, pattern

CASES = json.loads((Path(__file__).parent.parent / "spec" / "fixtures" / "own.json").read_text())


@pytest.mark.parametrize(("glob", "path", "matches"), CASES["globs"])
def test_globs(glob, path, matches):
    assert (pattern(glob).fullmatch(path) is not None) is matches


def as_paths(stacks):
    """Returns [(frame, number of its caller, weight), ...]."""
    found = []
    for frames in stacks:
        for i, (path, own, weight, *what) in enumerate(frames):
            found.append((Frame("", path, 0, 0, own, bool(what)), len(found) - 1 if i else None, weight))
    return found


@pytest.mark.parametrize("case", CASES["choices"], ids=lambda case: case["name"])
def test_choices(case):
    paths = as_paths(case["paths"])
    own = choose(case.get("asked", []), paths, case.get("entry", []))
    assert own.by == case["by"]
    assert [frame.path for frame, _, _ in paths if own.is_own(frame)] == case["own"]
    assert own.unmatched == case.get("unmatched", [])
    assert own.globs == case.get("globs", own.globs)
