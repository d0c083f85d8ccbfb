from probescope.command.ticked_time import Ticked, missed, ticked

COUNTED = {"runtime": "python", "ticked_ran_ns": 10_000, "ticked_met_ns": 9_000, "ticked_met": 900}


def after(part, met, seconds=10):
    exact = seconds * 10**9
    return Ticked(exact, round(exact * (1 - part)), met)


def test_more_ticks_tell_sooner_because_chance_explains_less():
    before = Ticked(0, 0, 0)
    assert missed(before, after(0.15, 300)) is None
    assert round(missed(before, after(0.15, 500)), 3) == 0.15
    assert missed(before, after(0.04, 10**6)) is None
    assert round(missed(before, after(0.06, 10**6)), 3) == 0.06
    assert missed(before, before) is None
    assert missed(None, before) is None


def test_an_older_library_counts_nothing():
    assert ticked(1, COUNTED) == (10_000, 9_000, 900)
    assert ticked(1, {**COUNTED, "ticked_met": None}) is None
