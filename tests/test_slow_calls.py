"""Slow calls below their callers. The gem's command has spec/tracing/slow_calls_spec.rb."""

from probescope.command.slow_calls import Call, SlowCalls


def calls(**of):
    """Takes name=(id, parent, ms)."""
    return SlowCalls(
        Call(own, parent, {"name": name, "elapsed_ns": ms, "at": str(own)})
        for name, (own, parent, ms) in of.items()
    )


def shown(found):
    return [(row["name"], row["depth"]) for row in found.rows()]


def test_each_call_stands_below_the_one_around_it_the_longest_first():
    found = calls(outer=(1, 0, 100), short=(2, 1, 30), long=(3, 1, 60), inner=(4, 3, 50), other=(5, 0, 200))
    assert shown(found) == [("other", 0), ("outer", 0), ("long", 1), ("inner", 2), ("short", 1)]


def test_calls_that_only_made_the_next_one_are_left_out():
    found = calls(outer=(1, 0, 100), relay=(2, 1, 99), made=(3, 2, 98), one=(4, 3, 10), two=(5, 3, 11))
    assert found.leave_out_relays() == 1
    assert shown(found) == [("outer", 0), ("made", 1), ("two", 2), ("one", 2)]


def test_calls_whose_ids_are_a_circle_are_shown():
    found = calls(one=(1, 2, 10), two=(2, 1, 20), alone=(3, 0, 5))
    assert shown(found) == [("alone", 0), ("one", 0), ("two", 1)]
