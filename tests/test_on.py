"""`probescope trace on EVENT` on a program that knows which events it makes in which function."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from probescope.command import c_function, event, machine
from probescope.command.errors import CommandError, Refused, Usage
from probescope.command.event import parse
from probescope.command.foreign import Place
from probescope.command.programs import program as path_of
from probescope.command.reader import Reader
from tracing import Child, maps_library, wait_for

COMMAND = [sys.executable, "-m", "probescope"]

LONG = "name" * 25
PROGRAM = f"""
import ctypes, mmap, os, threading
import gate

C = ctypes.CDLL(None)
C.labs.argtypes, C.labs.restype = [ctypes.c_long], ctypes.c_long
C.malloc.argtypes, C.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
C.free.argtypes = [ctypes.c_void_p]
PAGES = 1000

def asks(who, times):
    for _ in range(times):
        os.getpriority(os.PRIO_PROCESS, who)

def priorities():
    asks(0, 100)

def others():
    asks(os.getpid(), 30)

def raises():
    os.getpriority(os.PRIO_PROCESS, 0)
    raise RuntimeError("left by an exception")

def handles():
    try:
        raises()
    except RuntimeError:
        os.getpriority(os.PRIO_PROCESS, 0)

def generates():
    for _ in range(10):
        os.getpriority(os.PRIO_PROCESS, 0)
        yield
        os.getpriority(os.PRIO_PROCESS, 0)

def consumes():
    for _ in generates():
        os.getpriority(os.PRIO_PROCESS, 0)

def in_thread():
    for _ in range(15):
        os.getpriority(os.PRIO_PROCESS, 0)

def {LONG}():
    os.getpriority(os.PRIO_PROCESS, 0)

def labs():  # the sum of the arguments is 50
    for number in range(1, 101):
        C.labs(number if number % 2 == 0 else -number)

def mallocs():
    for _ in range(200):
        C.free(C.malloc(1 << 20))

def touches(memory):
    for page in range(PAGES):
        memory[page * 4096] = 1

def work():
    priorities()
    others()
    handles()
    consumes()
    threads = [threading.Thread(target=in_thread) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    {LONG}()
    labs()
    mallocs()
    memory = mmap.mmap(-1, PAGES * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    thread = threading.Thread(target=touches, args=(memory,))
    thread.start()
    thread.join()

def serve():
    gate.open("go")
    gate.flushed(3)
    work()
    gate.flushed()
    print("called", flush=True)
    gate.off("function__here")
    gate.done()

serve()
"""

ASKED = "tracepoint:syscalls:sys_enter_getpriority"


def waiting_tracers(pid):
    """Returns how many bpftraces on this process wait for events."""
    found = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            traces = words[0].endswith(b"bpftrace") and b"-p\0%d\0" % pid in b"\0".join(words)
            found += traces and "epoll" in (folder / "wchan").read_text()
        except OSError:  # it has ended
            continue
    return found


def start(program, children, tmp_path, *commands):
    """Runs these commands at the same time on the program. Returns the program and the commands."""
    started = program(PROGRAM)
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    run = []
    for words in commands:
        line = [*COMMAND, "trace", "on", *words, "-p", str(started.pid), "--json"]
        run.append(Child(line, env={**kept, "LANG": "C.UTF-8"}))
        children.append(run[-1])
    # On a busy machine the command stops waiting for bpftrace after 30 s. A bpftrace that waits for
    # events has attached all its probes.
    wait_for("all commands", lambda: all("\nprobescope: " in command.err for command in run), 180)
    wait_for("all probes", lambda: waiting_tracers(started.pid) == len(run), 180)
    (tmp_path / "go").touch()
    started.line("called", within=120)
    return started, run


def traced(program, children, tmp_path, *commands):
    """Returns the JSON of each command."""
    started, run = start(program, children, tmp_path, *commands)
    for command in run:
        command.process.send_signal(signal.SIGINT)
    told = []
    for command in run:
        assert command.wait() == 0, command
        told.append(json.loads(command.out))
    started.line("report ")
    return told


def by_function(told, figure="events"):
    found = {}
    for row in told["rows"]:
        if row["function"]:
            found[row["function"]] = found.get(row["function"], 0) + row[figure]
    return found


@pytest.mark.smoke
@pytest.mark.valgrind
def test_events_and_their_values_are_counted_by_function(bpf, program, children, tmp_path):
    counted, stacks, labs, mallocs, faults = traced(
        program,
        children,
        tmp_path,
        [ASKED],
        [ASKED, "--sum", "who", "--stack", "2"],
        ["uprobe:libc.so.6:labs", "--sum", "arg0"],
        ["uprobe:libc.so.6:malloc", "--sum", "arg0"],
        ["software:page-faults"],
    )
    known = {"asks": 130, "raises": 1, "handles": 1, "generates": 20, "consumes": 10, "in_thread": 60}
    assert by_function(counted) == {**known, LONG[:63]: 1}
    assert "names that may be cut after 63 bytes: 1" in counted["not_covered"]
    assert not any("may be cut" in line for line in labs["not_covered"])
    assert (counted["lost"]["unread"], counted["lost"]["map_full"]) == (0, 0)
    assert counted["event"] == ASKED
    assert any("also counted" in line for line in counted["not_covered"])  # ended by SIGINT
    assert "every process of the machine" in counted["reach"][0]

    called = {
        (row["function"], *(one["function"] for one in row["callers"])): (row["events"], row["sum"])
        for row in stacks["rows"]
    }
    pid = stacks["pids"][0]
    assert called[("asks", "priorities")] == (100, 0)
    assert called[("asks", "others")] == (30, 30 * pid)
    assert called[("raises", "handles")] == (1, 0)
    assert called[("generates", "consumes")] == (20, 0)
    assert (
        called[("in_thread",)] == (60, 0)
        or sum(events for functions, (events, _) in called.items() if functions[0] == "in_thread") == 60
    )

    assert by_function(labs)["labs"] == 100
    assert by_function(labs, "sum")["labs"] == 50
    assert labs["sum_of"] == "arg0"
    assert re.match(r"stops each call of labs in (at least )?[1-9]\d* process.*valgrind", labs["reach"][0])

    assert 200 <= by_function(mallocs)["mallocs"] <= 1000
    assert 200 << 20 <= by_function(mallocs, "sum")["mallocs"] <= (200 << 20) + 200_000

    assert 1000 <= by_function(faults)["touches"] <= 1100


def test_what_cannot_be_counted_is_said_before_bpftrace_starts(bpf, program, children, tmp_path):
    started = program(PROGRAM)
    wait_for("its library", lambda: maps_library(started.pid))
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    refused = {
        ("tracepoint:syscalls:sys_enter_none",): (1, "this kernel has no tracepoint syscalls:sys_enter_none"),
        (ASKED, "--sum", "none"): (1, "has no integer field none; it has __syscall_nr, which, who"),
        ("uprobe:libnone.so:labs",): (1, "maps no code of a file libnone.so"),
        ("uprobe:libc.so.6:no_such_function",): (1, "libc.so.6 has no function no_such_function"),
        ("uprobe:libc.so.6:strlen",): (1, "strlen of libc.so.6 has several versions"),
        ("software:cs", "--stack", "9"): (2, "--stack takes 1 to 8"),
        ("software:cs", "--sum", "arg0"): (2, "software:context-switches has no values"),
        (): (2, "which event?"),
    }
    for words, (status, why) in refused.items():
        line = [*COMMAND, "trace", "on", *words, "-p", str(started.pid), "-d", "600"]
        children.append(Child(line, env={**kept, "LANG": "C.UTF-8"}))
        assert children[-1].wait() == status, children[-1]
        assert why in children[-1].err
        assert children[-1].err.count("\n") == 2


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
def test_a_uprobe_is_refused_while_valgrind_runs_code_of_its_file(bpf, program, children, tmp_path):
    library, source = tmp_path / "part.so", tmp_path / "part.c"
    source.write_text("int part(int x) { return x + 1; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-O0", "-o", str(library), str(source)], check=True)
    load = f"import ctypes, gate, time; C = ctypes.CDLL({str(library)!r})\n"
    loop = "print('ready', flush=True)\nwhile True:\n    C.part(1)\n    time.sleep(0.01)\n"
    started = program(f"{load}{loop}")
    started.line("ready")
    wait_for("its library", lambda: maps_library(started.pid))
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}

    def trace(seconds):
        words = ["uprobe:part.so:part", "-p", str(started.pid), "-d", str(seconds), "--json"]
        children.append(Child([*COMMAND, "trace", "on", *words], env={**kept, "LANG": "C.UTF-8"}))
        return children[-1].wait(), children[-1]

    under = Child(["valgrind", "-q", "/bin/sleep", "600"], env={**kept, "LD_PRELOAD": str(library)})
    children.append(under)
    mapped = Path(f"/proc/{under.pid}/maps")
    wait_for("valgrind", lambda: "-linux\n" in mapped.read_text() and "part.so" in mapped.read_text())
    status, refused = trace(600)
    assert status == 1, refused
    assert f"a uprobe in part.so could end process {under.pid}, which valgrind runs" in refused.err
    assert refused.err.count("\n") == 2
    under.process.kill()
    under.wait()
    status, counted = trace(1)
    assert status == 0, counted
    told = json.loads(counted.out)
    assert told["lost"]["untold"] > 0
    assert "also counted" not in " ".join(told["not_covered"])


INJECTED = [
    "a; id", "$(id)", 'a\nBEGIN { system("id"); }', "a,kprobe:do_exit", "*", "a*", "a/b", "../x", "", " a",
    'a"', "a'", "a}", "//", "a\0b", "a\x1b[31m", "1a", "-c", "a:b", "\u00e9", "a" * 256, "a\n", "args->x",
    "$1", "\udcff",
]  # fmt: skip


@pytest.mark.parametrize("text", INJECTED)
def test_no_name_is_more_than_a_name(text):
    events = [f"tracepoint:{text}:open", f"tracepoint:syscalls:{text}", f"software:{text}"]
    if ":" not in text:  # else it belongs to the file's name: a file that no process maps
        events.append(f"uprobe:libc.so.6:{text}")
    for one in events:
        with pytest.raises(Usage):
            parse(one)
    for one in ("tracepoint:sched:sched_switch", "uprobe:libc.so.6:malloc"):
        with pytest.raises(Usage):
            parse(one, text)


@pytest.mark.parametrize("name", ["on", "on_stack"])
def test_two_lines_of_a_program_are_replaced_and_no_file_name_comes_into_it(name):
    text = path_of(name).read_text()
    known = {
        ("tracepoint:sched:sched_switch", "prev_pid"): ("tracepoint:sched:sched_switch", "args->prev_pid"),
        ("software:cs:1", None): ("software:context-switches:1", "0"),
        ('uprobe:lib "x"\n$(id):malloc', "arg3"): ('uprobe:"/proc/7/fd/3":"malloc"', "arg3"),
    }
    for (asked, value), (point, expression) in known.items():
        told = parse(asked, value).program(text, "/proc/7/fd/3").splitlines()
        changed = [one for one, other in zip(told, text.splitlines()) if one != other]
        assert changed == [point, *([f"  $value = (int64){expression};"] if value else [])]
        assert len(told) == len(text.splitlines())


def test_fields_of_a_tracepoint_are_integers(tmp_path):
    folder = tmp_path / "shop" / "sold"
    folder.mkdir(parents=True)
    (folder / "id").write_text("7\n")
    fields = [
        "u64 price",
        "const char * buyer",
        "char comm[16]",
        "__data_loc char[] name",
        "struct a b",
        "enum c d",
    ]
    lines = [
        f"\tfield:{one};\toffset:8;\tsize:8;\tsigned:0;" for one in ("unsigned short common_type", *fields)
    ]
    (folder / "format").write_text("name: sold\nformat:\n" + "\n".join(lines))
    assert event.integer_fields("shop", "sold", [str(tmp_path)]) == ["price"]
    with pytest.raises(CommandError, match="has no integer field buyer; it has price"):
        parse("tracepoint:shop:sold", "buyer").check_exists([str(tmp_path)])
    with pytest.raises(CommandError, match="this kernel has no tracepoint shop:lent"):
        parse("tracepoint:shop:lent").check_exists([str(tmp_path)])
    with pytest.raises(CommandError, match="lists no tracepoints"):
        parse("tracepoint:shop:sold").check_exists([str(tmp_path / "none")])


def test_software_events_are_refused_where_bpftrace_would_count_one_thread():
    machine.check_event(machine.Bpftrace("bpftrace", "0.23.5"), os.getpid(), "software")
    with pytest.raises(CommandError, match="first thread of a process only"):
        machine.check_event(machine.Bpftrace("bpftrace", "0.24.0"), os.getpid(), "software")


@pytest.fixture
def mapping(tmp_path, children):
    """A process that maps copies of a library with a function of its own, under odd names."""
    source = tmp_path / "part.c"
    source.write_text("int public1(int x) { return x + 1; }")
    names = ["libplain.so", "lib $(id) \"'.so", "lib\nBEGIN{}.so"]
    for name in names:
        build = ["cc", "-shared", "-fPIC", "-O0", "-o", str(tmp_path / name), str(source)]
        subprocess.run(build, check=True)
    load = (
        "import ctypes, sys, time; [ctypes.CDLL(one) for one in sys.argv[1:]]; print('ready', flush=True); "
    )
    words = [sys.executable, "-c", f"{load}time.sleep(600)", *(str(tmp_path / name) for name in names)]
    children.append(Child(words))
    children[-1].line("ready")
    return children[-1].pid, names


def test_the_file_of_a_function_is_one_that_the_process_maps(mapping, tmp_path):
    pid, names = mapping

    def inode(name):
        descriptor, _ = c_function.find(pid, os.fsencode(name), "public1")
        found = os.fstat(descriptor).st_ino
        os.close(descriptor)
        return found

    for name in names:
        assert inode(str(tmp_path / name)) == (tmp_path / name).stat().st_ino
    assert inode("libplain.so") == (tmp_path / "libplain.so").stat().st_ino
    link = tmp_path / "link.so"
    link.symlink_to(tmp_path / "libplain.so")
    assert inode(str(link)) == (tmp_path / "libplain.so").stat().st_ino
    for other in ("/etc/passwd", "/dev/null", str(tmp_path), "nowhere"):  # replaced meanwhile
        link.unlink()
        link.symlink_to(other)
        with pytest.raises(Refused, match="maps no code of a file"):
            inode(str(link))
    link.unlink()
    os.mkfifo(link)
    for name in (str(link), "libnone.so", "lib*.so", "part.c", names[2]):
        with pytest.raises(Refused, match="maps no code of a file"):
            inode(name)
    with pytest.raises(Refused, match="has no function none"):
        c_function.find(pid, b"libplain.so", "none")
    with pytest.raises(Refused, match="IFUNC"):
        c_function.find(pid, b"libc.so.6", "strlen")
    (tmp_path / "libplain.so").unlink()
    os.close(c_function.find(pid, b"libplain.so", "public1")[0])


def test_the_reader_hands_over_a_descriptor_and_refuses_a_process_that_has_ended(mapping):
    pid, _ = mapping
    with open(f"/proc/{pid}/stat", "rb") as file:
        born = file.read().rpartition(b") ")[2].split()[19]
    reader = Reader()
    for _ in range(2):
        descriptor, file = reader.ask("function", Place(pid, born, None, 0), b"libplain.so", "public1")
        assert os.pread(descriptor, 4, 0) == b"\x7fELF"
        assert not os.get_inheritable(descriptor)
        os.close(descriptor)
    assert reader.ask("runner", pid, file) == "kernel"
    assert reader.ask("runner", os.getpid(), file) is None
    with pytest.raises(Refused, match="just ended"):
        reader.ask("function", Place(pid, b"1", None, 0), b"libplain.so", "public1")
