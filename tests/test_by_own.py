"""The call paths of a trace, without a tracer. The gem's spec/tracing/by_own_spec.rb has more."""

from probescope.command.by_own import CallPaths
from probescope.command.reports import HotByOwn
from probescope.command.result import Result


def result(frames, weights):
    """frames: {id: (parent, function, path, flags)}. weights: {id: ms}."""
    paths = {frame[2] for frame in frames.values()}
    files = {path: 100 + i for i, path in enumerate(sorted(paths))}
    found = Result(7, "hot_own")
    found.add(
        {
            "@frame": {
                f"7,{id_}": [id_, parent, id_, 1, flags, files[path]]
                for id_, (parent, _, path, flags) in frames.items()
            },
            "@name": {f"7,{id_}": [id_, frame[1]] for id_, frame in frames.items()},
            "@file": {f"7,{number}": [number, path] for path, number in files.items()},
            "@full_path": {f"7,{number}": [number, path] for path, number in files.items()},
            "@weight": {f"7,{id_}": ms * 10**6 for id_, ms in weights.items()},
            "@count": {f"7,{id_}": ms for id_, ms in weights.items()},
        }
    )
    return found


def test_paths_that_are_their_own_callers_end_and_long_ones_are_taken():
    frames = {1: (2, "a", "/x.py", 1), 2: (1, "b", "/x.py", 1), 3: (3, "c", "/x.py", 1)}
    frames.update({i + 10: (i + 11, f"f{i}", "/y.py", 1) for i in range(20_000)})
    paths = CallPaths(result(frames, {1: 1, 3: 2, 10: 4, 0: 8}))
    assert paths.weight == 7_000_000
    found = next(node for node in paths.nodes if node.frame.function == "a")
    assert [node.frame.function for node in found.outwards()] == ["a", "b"]
    assert all(parent is None or parent < i for i, (_, parent, _) in enumerate(paths.paths))


def test_builtins_that_nobody_called_count_for_themselves_where_nothing_is_the_applications():
    frames = {
        1: (0, "Integer#times", "<internal:numeric>", 0),
        2: (0, "Lib.work", "/lib.rb", 0),
        3: (2, "Zlib.crc32", "<cfunc>", 0),
    }
    rows = HotByOwn(result(frames, {1: 30, 2: 20, 3: 50})).rows()
    assert {row["function"]: row["self_share"] for row in rows if row["self_share"]} == {
        "Integer#times": 0.3,
        "Lib.work": 0.7,
    }
