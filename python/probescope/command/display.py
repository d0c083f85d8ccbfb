"""What of an answer is shown, and how.

Generated from providers/tracing.yml by `rake generate`. Do not edit.
"""

from __future__ import annotations

# The share from which on a cell has the colour of the largest ones.
HOT = 0.2
# The share from which on a cell is coloured.
WARM = 0.05
# The least width of a terminal; a narrower table has no room for names.
NARROWEST = 60
# No column is made narrower to fit a terminal.
LEAST_WIDTH = 16
# Calls in a table that are deeper are indented like those of this depth.
DEEPEST = 24
# The same for calls that are shown as they happen.
DEEPEST_LIVE = 60
# Characters of the longest bar of a histogram.
BAR = 40
# Rows of a table without --top.
TOP = 20
# A slow call is left out if it made a single call, which took this share of its time.
PASSED_ON = 0.95
