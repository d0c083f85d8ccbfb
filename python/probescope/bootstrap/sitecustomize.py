"""`probescope run` puts this file's folder into PYTHONPATH when the package is not installed with
its .pth file: see probescope/command/run.py.
"""

import os
import sys


def load() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    if os.environ.get("PROBESCOPE", "0") not in ("", "0"):
        try:
            import probescope.auto  # noqa: F401
        except Exception:
            pass
    # This module hides the application's own sitecustomize, so load that one now.
    del sys.modules["sitecustomize"]
    try:
        import sitecustomize  # type: ignore  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = type(sys)("sitecustomize")


load()
