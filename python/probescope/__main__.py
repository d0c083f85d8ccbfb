import os
import sys

# `python -m` puts the current directory first in sys.path. Anybody may have put a module of any
# name there. The command `probescope` starts without that entry.
if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]

from probescope.command.main import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
