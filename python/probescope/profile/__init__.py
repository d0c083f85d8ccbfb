"""Recordings: weights of call paths over time, and the formats in which they are stored."""
