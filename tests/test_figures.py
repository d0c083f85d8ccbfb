"""The format of figures in the command's output. spec/tracing/figure_spec.rb holds the gem to the
same texts.
"""

import json
from pathlib import Path

import pytest
from probescope.command.result import decimals
from probescope.command.text import count, decimal, duration, share, size

FIGURES = json.loads((Path(__file__).parents[1] / "spec/fixtures/figures.json").read_text())
SHOWN = {"time": duration, "bytes": size, "count": count, "share": share, "decimal": decimal}


@pytest.mark.parametrize("kind", SHOWN)
def test_figures_are_shown_as_the_gem_shows_them(kind):
    assert [(figure, SHOWN[kind](figure)) for figure, _ in FIGURES[kind]] == list(map(tuple, FIGURES[kind]))


def test_a_half_is_rounded_up_as_the_gem_does():
    figures = [(1 / 16, 3), (1 / 128, 6), (0.25, 1), (0.285, 2), (2.5, 0), (0, 3)]
    assert [decimals(*one) for one in figures] == [0.063, 0.007813, 0.3, 0.29, 3, 0]  # Ruby's round
    assert decimals(None, 3) is None
