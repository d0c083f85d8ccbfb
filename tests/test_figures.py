"""The format of figures in the command's output."""

from probescope.command.result import decimals
from probescope.command.text import decimal, duration, size


def test_figures_have_three_digits_also_when_they_are_rounded_up():
    times = (0, 999, 1000, 9_994, 9_996, 99_940, 99_960, 999_499, 999_500, 999_600, 10**9)
    assert [duration(ns) for ns in times] == [
        "0 ns",
        "999 ns",
        "1.00 us",
        "9.99 us",
        "10.0 us",
        "99.9 us",
        "100 us",
        "999 us",
        "1.00 ms",
        "1.00 ms",
        "1.00 s",
    ]
    assert [size(number) for number in (999, 1000, 1023, 1024, 1024**3 - 1)] == [
        "999 B",
        "0.98 KiB",
        "1.00 KiB",
        "1.00 KiB",
        "1.00 GiB",
    ]
    assert (duration(None), size(None)) == ("-", "-")
    assert duration(12_345 * 10**9) == "12345 s"


def test_what_is_a_thousand_and_more_has_no_fraction():
    figures = (None, 0, 37.25, 999.94, 999.96, 6704.6, 171_384.1)
    texts = ["-", "0.0", "37.2", "999.9", "1,000", "6,705", "171,384"]
    assert [decimal(figure) for figure in figures] == texts


def test_a_half_is_rounded_up_as_the_gem_does():
    figures = [(1 / 16, 3), (1 / 128, 6), (0.25, 1), (0.285, 2), (2.5, 0), (0, 3)]
    assert [decimals(*one) for one in figures] == [0.063, 0.007813, 0.3, 0.29, 3, 0]  # Ruby's round
    assert decimals(None, 3) is None
