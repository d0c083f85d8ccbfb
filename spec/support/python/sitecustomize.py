"""Loads probescope into every Python that has this folder in its PYTHONPATH."""

import probescope

probescope.install()
