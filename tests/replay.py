"""What `python -m probescope trace PROGRAM -p PID` prints of what a bpftrace printed, for spec/commands/recorded_spec.rb.

Reads lines of JSON, {"program", "pid", "output": bpftrace's output, a character a byte}, and answers each with a line: a string.
"""

import json
import sys

from probescope.command.trace import Shown

for line in sys.stdin:
    asked = json.loads(line)
    shown = Shown(asked["pid"], asked["program"])
    lines = [text for told in asked["output"].encode("latin-1").split(b"\n") for text in shown.take(told)]
    print(json.dumps("\n".join([*shown.head(), *lines, *shown.rest(), ""])), flush=True)
