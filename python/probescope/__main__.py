import sys

from probescope.command.main import main

sys.exit(main(sys.argv[1:]))
