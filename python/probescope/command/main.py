"""The command line. Its exit status:

0    done
1    failed; stderr has one line with the reason, and one with the next step
2    wrong command line
130  interrupted before there was anything to show
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import sys
from typing import Any, Callable, List, NoReturn

from probescope.command.definitions import ALL, LINES
from probescope.command.display import TOP
from probescope.command.errors import CommandError, Usage
from probescope.command.terminal import COLORS
from probescope.command.text import UNITS, clean

NAME = "probescope"
# The environment variable with options of `trace`. They precede those of the command line.
DEFAULTS = "PROBESCOPE_OPTS"
ABOUT = """\
For machines without the gem: loads probescope into Python applications, and runs bpftrace \
programs on processes that have loaded it.
"""
EXAMPLES = """\
examples:
  venv/bin/probescope run -m gunicorn app:app     start an application with the probes in it
  sudo venv/bin/probescope trace exceptions -p 4711 -d 10
                                                  ask it, for 10 seconds, while it runs

`probescope COMMAND --help` explains each of them.
"""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Usage(message, f"{self.prog} --help")


def process_id(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise Usage(f"{text!r} is no process id", f"{NAME} trace exceptions -p 4711")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e6:
        raise Usage(f"{text!r} is no time in seconds", f"{NAME} trace exceptions -p 4711 -d 10")
    return value


def percentage(text: str) -> float:
    try:
        value = float(text[:-1] if text.endswith("%") else text)
    except ValueError:
        value = 0
    if not 0 < value < 1e6:
        raise Usage(
            "--max-overhead takes a percentage above 0", f"{NAME} trace calls -p 4711 --max-overhead 5%"
        )
    return value / 100


def share(text: str) -> float:
    try:
        return float(text[:-1] if text.endswith("%") else text)
    except ValueError:
        raise Usage(
            f"--min takes a percentage, and not {text!r}", f"{NAME} trace exceptions -p 4711 --min 5"
        ) from None


def least_change(text: str) -> float:
    try:
        found = float(text[:-1] if text.endswith("%") else text)
    except ValueError:
        found = -1
    if not 0 <= found <= 100:
        raise Usage(f'--min takes 0 to 100 percent, and not "{text}"', "--min 5")
    return found


# The longest time in ns that bpftrace can parse. No call takes that long.
LONGEST = 1 << 62
TIME = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s)", re.ASCII)


def time(text: str) -> int:
    """Returns ns for a text such as "25ms"."""
    match = TIME.fullmatch(text)
    if not match:
        raise Usage(f"{text!r} is no time", f"{NAME} trace slow -p 4711 --threshold 25ms")
    return round(float(match[1]) * dict(UNITS)[match[2]])


def slower(text: str) -> int:
    """Returns ns for a text such as "1ms"."""
    if not TIME.fullmatch(text):
        raise Usage(f"{text!r} is no time", f"{NAME} trace syscalls -p 4711 --slower 1ms")
    return min(time(text), LONGEST)


def frames(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise Usage(f"--stack takes 1 to 8, and not {text!r}", f"{NAME} trace on EVENT -p 4711 --stack 4")
    return int(text)


def number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise Usage(f"--top takes 0 or more, and not {text!r}", f"{NAME} trace exceptions -p 4711 --top 20")
    return int(text)


# Adds a command: its name, what it does, and examples.
Add = Callable[..., argparse.ArgumentParser]
COMMANDS = ["run", "attach", "trace", "record", "convert", "diff", "script", "doctor", "status"]
# What a command takes, for the message about an unexpected argument. `run` takes every argument.
USAGE = {
    "attach": "attach PID",
    "trace": "trace NAME -p PID [options]",
    "record": "record -p PID -o FILE [options]",
    "convert": "convert FILE [options]",
    "diff": "diff BEFORE AFTER [options]",
    "script": "script [NAME]",
    "doctor": "doctor [options]",
    "status": "status -p PID [options]",
}


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog=NAME, description=ABOUT, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", "-v", action="store_true", help="print the version")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)

    def add(name: str, about: str, *examples: str) -> argparse.ArgumentParser:
        epilog = "\n".join(["examples:", *(f"  {example}" for example in examples)])
        form = argparse.RawDescriptionHelpFormatter
        return commands.add_parser(name, help=about, description=about, epilog=epilog, formatter_class=form)

    for define in (
        define_run,
        define_attach,
        define_trace,
        define_recordings,
        define_script,
        define_readers,
    ):
        define(add)
    return top


def define_run(add: Add) -> None:
    run = add(
        "run",
        "start an application with probescope loaded, also into Python processes that it starts",
        f"{NAME} run app.py --port 3000",
        f"{NAME} run -m gunicorn app:app",
        f"{NAME} run --functions '*/app/*,Invoice.*' gunicorn app:app",
    )
    run.add_argument(
        "--functions",
        metavar="GLOBS",
        help="which functions are covered, in the form of PROBESCOPE_FUNCTIONS",
    )
    run.add_argument("arguments", nargs="*", metavar="app.py | -m MODULE | -c CODE | PROGRAM [ARGUMENT ...]")


def define_attach(add: Add) -> None:
    attach = add(
        "attach",
        "load probescope into a running process that never imported it "
        "(Python 3.14 and later, the same version as this one)",
        f"sudo {NAME} attach 4711",
    )
    attach.add_argument("pid", type=process_id, metavar="PID")


def define_trace(add: Add) -> None:
    trace = add(
        "trace",
        "run a bpftrace program on a process and print the result; as root, or through sudo",
        f"sudo {NAME} trace exceptions -p 4711 -d 10",
        f"sudo {NAME} trace slow -p 4711            until Ctrl-C",
        f"sudo {NAME} trace alloc_by_request -p 4711 -d 10 --json",
        f"sudo {NAME} trace on uprobe:libc.so.6:malloc -p 4711 --sum arg0",
    )
    trace.add_argument("name", metavar="NAME", help=f"the program; `{NAME} script` lists all")
    trace.add_argument(
        "event",
        metavar="EVENT",
        nargs="?",
        help="for on: tracepoint:CATEGORY:NAME, software:NAME (page-faults, cs, ...) or uprobe:FILE:SYMBOL",
    )
    trace.add_argument("-p", "--pid", type=process_id, required=True, help="the process")
    trace.add_argument(
        "-d",
        "--duration",
        "--seconds",
        dest="seconds",
        metavar="SECONDS",
        type=seconds,
        help="how long to trace, in seconds; without it, until Ctrl-C",
    )
    trace.add_argument(
        "--by-request",
        action="store_true",
        help="rows of each method and route, of alloc, exceptions, hot, offcpu, on, slow, syscalls and waits",
    )
    trace.add_argument(
        "--threshold", type=time, metavar="TIME", help="for slow: the shortest call to show, 10ms by default"
    )
    trace.add_argument(
        "--files",
        action="store_true",
        help="for syscalls: rows for each path, of calls that take one: open, stat, mkdir, unlink, ...",
    )
    trace.add_argument(
        "--by",
        metavar="WHAT",
        help="for hot and lines, own: what libraries cost counts for the line of the application that called "
        "them (the default, where the application is told from its libraries), or self: for themselves; for "
        "hot, total: the same, sorted by TOTAL; for syscalls, line: a row for each line of Python code",
    )
    define_own(trace, "for hot and lines: ")
    trace.add_argument("--failed", action="store_true", help="for syscalls: only calls that returned errors")
    trace.add_argument(
        "--slower",
        type=slower,
        default=0,
        metavar="TIME",
        help="for syscalls: count only calls that take at least this long: 100us, 1ms",
    )
    trace.add_argument(
        "--sum",
        metavar="VALUE",
        help="for on: add up this value of each event: a field of the tracepoint, or arg0 to arg3",
    )
    trace.add_argument(
        "--stack",
        type=frames,
        metavar="N",
        help="for on: rows for each stack of N calls, at most 8: a BPF program reads no more",
    )
    trace.add_argument(
        "--max-overhead",
        type=percentage,
        metavar="PERCENT",
        help="end early once looking takes more of the process's CPU time, such as 5%%",
    )
    define_output(trace)


def define_output(trace: argparse.ArgumentParser) -> None:
    """The options that change what is shown of a trace."""
    trace.add_argument(
        "--top", type=number, default=TOP, help=f"how many rows to show, {TOP} by default; 0 for all"
    )
    trace.add_argument("--min", type=share, default=0, metavar="PERCENT", help="hide rows below this share")
    trace.add_argument("--sort", metavar="COLUMN", help="sort by another column, the largest first")
    trace.add_argument(
        "--json",
        action="store_true",
        help="print JSON, one object with all rows or one a line; docs/schema describes it",
    )
    trace.add_argument("-o", "--output", metavar="FILE", help="into a file and not on the terminal")
    trace.add_argument(
        "--color",
        choices=COLORS,
        default="auto",
        help="of large shares and of warnings: auto by default (NO_COLOR)",
    )


def define_recordings(add: Add) -> None:
    """The commands that write and read recordings."""
    record = add(
        "record",
        "record the call paths that are on the CPU, for each second and thread, into a file whose ending "
        "is the format: .html, .pb.gz, .speedscope.json, .collapsed; as root, or through sudo",
        f"sudo {NAME} record -p 4711 -d 30 -o shop.pb.gz",
        f"sudo {NAME} record -p 4711 -o shop.pb.gz      until Ctrl-C",
    )
    record.add_argument("-p", "--pid", type=process_id, required=True, help="the process")
    record.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write")
    record.add_argument("--force", action="store_true", help="replace the file")
    record.add_argument(
        "-d",
        "--duration",
        dest="seconds",
        metavar="SECONDS",
        type=seconds,
        help="how long to record, in seconds; without it, until Ctrl-C",
    )
    record.add_argument(
        "--max-overhead",
        type=percentage,
        metavar="PERCENT",
        help="end early once looking takes more of the process's CPU time, such as 5%%",
    )
    record.add_argument("--json", action="store_true", help="one JSON object instead of the tables")
    record.add_argument(
        "--color", choices=COLORS, default="auto", help="of warnings: auto by default (NO_COLOR)"
    )
    convert = add(
        "convert",
        "show the tables of a recording (`probescope record`), or write it in the format that the ending "
        "of -o names: .html, .pb.gz, .speedscope.json, .collapsed",
        f"{NAME} convert shop.pb.gz",
        f"{NAME} convert shop.pb.gz --by self --top 0",
        f"{NAME} convert shop.pb.gz -o shop.speedscope.json",
    )
    convert.add_argument("file", metavar="FILE", help="a .pb.gz file; also a pprof file of another tool")
    convert.add_argument("-o", "--output", metavar="FILE", help="the file to write; its ending is the format")
    convert.add_argument("--force", action="store_true", help="replace the file")
    convert.add_argument("--kind", help="for .collapsed, which has one kind: the first one by default")
    convert.add_argument("--top", type=number, help="rows of each table, 10 by default; 0 for all")
    diff = add(
        "diff",
        "show the functions that cost more or less in the second recording than in the first, "
        "by more than chance",
        f"{NAME} diff before.pb.gz after.pb.gz",
        f"{NAME} diff before.pb.gz after.pb.gz --per cpu",
    )
    diff.add_argument("before", metavar="BEFORE", help="a .pb.gz file")
    diff.add_argument("after", metavar="AFTER", help="another one")
    diff.add_argument(
        "-o", "--output", metavar="FILE", help="write FILE.html, a page with a red and blue flame graph"
    )
    diff.add_argument("--force", action="store_true", help="replace the file")
    diff.add_argument(
        "--per",
        choices=("time", "cpu"),
        default="time",
        help="what figures are divided by: time (default), or cpu: shares of the whole",
    )
    diff.add_argument(
        "--min",
        type=least_change,
        default=1.0,
        metavar="PERCENT",
        help="the least change, 1 by default, in percent of the whole before",
    )
    for command in (convert, diff):
        command.add_argument(
            "--by",
            choices=("own", "self", "total"),
            help="own: charge libraries to the application's function that called them, the default where "
            "the application is told from its libraries; self or total",
        )
        command.add_argument("--json", action="store_true", help="one JSON object with every row")
    for command in (record, convert, diff):
        define_own(command)


def define_own(command: argparse.ArgumentParser, of: str = "") -> None:
    command.add_argument(
        "--own",
        action="extend",
        type=lambda text: [glob.strip() for glob in text.split(",") if glob.strip()],
        default=[],
        metavar="GLOB",
        help=f"{of}which files are the application's, such as 'app/*'; '!GLOB' takes files away; more than "
        "one: --own again, or separated by commas",
    )


def define_script(add: Add) -> None:
    script = add(
        "script",
        "print a bpftrace program; without a name, list all",
        f"{NAME} script",
        f"{NAME} script exceptions > exceptions.bt && sudo bpftrace -p 4711 exceptions.bt",
    )
    script.add_argument("name", metavar="NAME", nargs="?")


def define_readers(add: Add) -> None:
    """The commands that read what a process or the machine says, without bpftrace."""
    doctor = add(
        "doctor",
        "check what tracing needs on this machine, and with -p in a process, "
        "and say how to get what is missing",
        f"{NAME} doctor",
        f"sudo {NAME} doctor -p 4711 --json",
    )
    doctor.add_argument("-p", "--pid", type=process_id, help="the process")
    status = add(
        "status",
        "show the state of a process's probes, and the probes that the application has defined",
        f"sudo {NAME} status -p 4711",
    )
    status.add_argument("-p", "--pid", type=process_id, required=True, help="the process")
    for command in (doctor, status):
        command.add_argument("--json", action="store_true", help="one JSON object instead of the lines")


def split_run(argv: List[str]) -> int:
    """Returns the index where the options of `run` end. The application's command line begins
    there, and is not parsed.
    """
    i = 1
    while i < len(argv) and argv[i].startswith(("--functions", "-h", "--help")):
        i += 2 if argv[i] == "--functions" else 1
    return i


def expanded(argv: List[str]) -> List[str]:
    """Adds the options of PROBESCOPE_OPTS to `trace`. Inserts `trace` when the first word is a
    command of the gem.
    """
    if argv[:1] and argv[0] in (*ALL, *LINES):
        argv = ["trace", *argv]
    if argv[:1] != ["trace"]:
        return argv
    try:
        return [*argv[:2], *shlex.split(os.environ.get(DEFAULTS, "")), *argv[2:]]
    except ValueError as error:
        raise Usage(f"{DEFAULTS} is no list of options: {error}", f"unset {DEFAULTS}") from None


def check_command(argv: List[str], known: List[str]) -> None:
    """Raises Usage, with similar names, for an unknown command."""
    if argv[:1] and not argv[0].startswith("-") and argv[0] not in known:
        near = difflib.get_close_matches(argv[0], known)
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        raise Usage(f"there is no command {argv[0]!r}{meant}", f"{NAME} --help")


def check_surplus(options: Any, surplus: List[str]) -> None:
    """Raises Usage for an argument that the command does not take."""
    if not surplus:
        return
    text, command = surplus[0], options.command
    if text.startswith("-") or command not in USAGE:
        prefix = f"{NAME} {command}" if command else NAME
        raise Usage(f"unrecognized arguments: {' '.join(surplus)}", f"{prefix} --help")
    if command == "trace" and options.name.startswith("slow") and TIME.fullmatch(text):
        raise Usage(
            f"unexpected argument {text!r}; a time is given with --threshold",
            f"{NAME} trace slow -p 4711 --threshold {text}",
        )
    raise Usage(f"unexpected argument {text!r}; usage: {NAME} {USAGE[command]}", f"{NAME} {command} --help")


def settle_event(options: Any, surplus: List[str]) -> List[str]:
    """Returns the arguments of `trace` that it does not take. Only `on` takes an event. argparse does
    not find it behind an option.
    """
    if options.name not in ("on", "on_stack"):
        return [*filter(None, [options.event]), *surplus]
    if not options.event and surplus and not surplus[0].startswith("-"):
        options.event, *surplus = surplus
    return surplus


def dispatch(argv: List[str]) -> int:
    top = parser()
    argv = expanded(argv)
    check_command(argv, [*COMMANDS, *ALL, *LINES])
    end = split_run(argv) if argv[:1] == ["run"] else len(argv)
    options: Any
    options, surplus = top.parse_known_args(argv[:end])
    if options.command == "trace":
        surplus = settle_event(options, surplus)
    check_surplus(options, surplus)
    if argv[end:]:
        options.arguments = argv[end:]
    if options.version:
        from probescope.command.crash import version

        print(f"probescope {version()}")
        return 0
    if not options.command:
        top.print_help()
        return 0
    from importlib import import_module

    status: int = import_module(f"probescope.command.{options.command}").run(options)
    return status


def main(argv: List[str]) -> int:
    """argv: without the program's name. Returns the exit status."""
    try:
        status = dispatch(argv)
        sys.stdout.flush()
        return status
    except CommandError as error:
        return complain(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        from probescope.command.crash import Crash

        return complain(Crash(error))


def complain(error: CommandError) -> int:
    """Prints the error and its next step. Returns the exit status."""
    print(f"probescope: {clean(error)}", file=sys.stderr)
    if error.next_step:
        print(f"  try: {clean(error.next_step)}", file=sys.stderr)
    return 2 if isinstance(error, Usage) else 1
