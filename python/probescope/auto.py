"""Loads and installs: import probescope.auto, or PROBESCOPE=1 where the package is installed.

On a Python that it cannot work on it does nothing, and probescope.status() and the command's
`doctor` say why.
"""

import probescope

probescope.install()
