"""Formats recorded output of bpftrace as `python -m probescope trace PROGRAM -p PID [--json]`
would. Run by spec/commands/recorded_spec.rb.

Each input line is a JSON object: {"program", "pid", "argv", "json", "known", "ended", "output"}.
`argv` are the arguments of the gem's command. `known` is the state of the process, and `ended` is
whether the process ended during the trace. `output` is
bpftrace's output, with one character for each byte. Each answer is a line of JSON: [stdout, stderr].
"""

import contextlib
import io
import json
import sys
from argparse import Namespace

from probescope.command.display import TOP
from probescope.command.errors import CommandError
from probescope.command.event import parse
from probescope.command.programs import probes, program
from probescope.command.reports import report_of
from probescope.command.thread_states import Quiet
from probescope.command.trace import Output, keys


def replay(asked, known):
    options = Namespace(
        pid=asked["pid"],
        json=asked["json"],
        top=TOP,
        min=0,
        sort=None,
        color="auto",
        failed=False,
        slower=0,
        own=[],
    )
    event = None
    if asked["program"].startswith("on"):
        words = dict(zip(asked["argv"][1::2], asked["argv"][2::2]))
        event = parse(asked["argv"][0], words.get("--sum"))
    output = Output(options, asked["program"], probes(program(asked["program"])), event)
    output.result.known = known
    output.result.ended = asked["ended"]
    output.result.waited_ns = known.get("waited_ns")
    if "threads" in known:
        files = dict(map(tuple, known["files"]))
        threads = [(one, ran, call and tuple(call)) for one, ran, call in known["threads"]]
        output.result.quiet = Quiet(threads, known["more_threads"], files)
    try:
        lines = [
            text for told in asked["output"].encode("latin-1").split(b"\n") for text in output.take(told)
        ]
        return [*output.head(), *lines, *output.finish(keys(asked["program"], report_of(asked["program"])))]
    except CommandError as error:
        print(f"probescope: {error}\n  try: {error.next_step}", file=sys.stderr)
        return []


for line in sys.stdin:
    asked = json.loads(line)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        lines = replay(asked, asked["known"])
    print(json.dumps(["".join(f"{text}\n" for text in lines), said.getvalue()]), flush=True)
