"""Loads and installs probescope: `import probescope.auto`, or PROBESCOPE=1 where the package is
installed.

On an unsupported Python it does nothing. probescope.status() and the command `doctor` then give the
reason.
"""

import probescope

probescope.install()
