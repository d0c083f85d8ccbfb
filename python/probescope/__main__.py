import os
import sys

# `python -m` puts the current folder first, where anybody may have put a module of any name. The
# command `probescope` never has it.
if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]

from probescope.command.main import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
