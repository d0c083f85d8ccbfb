"""Real servers that fork their workers. Each worker is traced, however it was created, and ends as
it would without probescope.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import urllib.request

import pytest
from attacher import library
from tracing import Child, start_tracer, stop_tracer, wait_for

APP = """
import probescope
probescope.install()
import os

class Lost(Exception):
    pass

def work(n):
    try:
        raise Lost
    except Lost:
        return n

def application(environ, start):
    for n in range(10): work(n)
    start("200 OK", [("Content-Type", "text/plain")])
    return [b"%d" % os.getpid()]
"""


@pytest.fixture
def serve(bpf, children, tmp_path):
    """Returns (start, ask).

    start(*command) starts a server, and returns when it has answered a request. ask() sends a
    request and returns the worker's PID.
    """
    (tmp_path / "shop.py").write_text(APP)
    socket = "127.0.0.1:%d" % (20000 + os.getpid() % 20000)

    def start(*command):
        environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(tmp_path)}
        environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
        children.append(Child([*command, socket], env=environment, cwd=tmp_path))
        wait_for("an answer", lambda: ask(False) or children[-1].process.poll() is not None)
        return children[-1]

    def ask(needed=True):
        try:
            with urllib.request.urlopen("http://" + socket, timeout=20) as answer:
                return int(answer.read())
        except OSError:
            if needed:
                raise
            return None

    return start, ask


def counts_of(tracer):
    stop_tracer(tracer)
    return {
        int(pid): int(count)
        for pid, count in re.findall(r"^@raised\[(\d+)\]: (\d+)", tracer.out, re.MULTILINE)
    }


def check(start, ask, children, command, restart):
    server = start(*command)
    tracer = start_tracer(None, f"""
        usdt:{library()}:probescope:exception__stats /str(arg0) == "shop.Lost"/
        {{ @raised[pid] = sum(arg3); }}
        usdt:{library()}:probescope:stats__done {{ printf("done %d\\n", pid); }}""")  # fmt: skip
    children.append(tracer)
    asked = {}

    def flushes(pid):
        return tracer.out.count("done %d\n" % pid)

    def flushed(pid, times):
        return lambda: flushes(pid) >= times

    def ended_or_flushed(pid, times):
        return lambda: not os.path.exists(f"/proc/{pid}") or flushes(pid) >= times

    def ask_some(count):
        for _ in range(count):
            pid = ask()
            if flushes(pid):
                asked[pid] = asked.get(pid, 0) + 10

    first = ask()
    wait_for("its hooks", flushed(first, 2))
    ask_some(30)
    before = set(asked)
    assert before
    if restart:
        server.process.send_signal(restart)
        wait_for(
            "the end of the old workers", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in before)
        )
        second = wait_for("new workers", lambda: ask(False))
        wait_for("the hooks of the new ones", flushed(second, 2))
        ask_some(30)
        assert set(asked) - before
    for pid in asked:
        wait_for("the rest", ended_or_flushed(pid, flushes(pid) + 2))
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0, str(server)
    raised = counts_of(tracer)
    assert all(raised.get(pid, 0) >= count for pid, count in asked.items()), (raised, asked)
    assert not re.search("Traceback|[Ss]egmentation", server.err), server.err


@pytest.mark.parametrize(
    "options",
    [
        ["--workers", "2", "--preload"],
        ["--workers", "1", "--max-requests", "10"],
        ["--workers", "1", "-k", "gevent"],
    ],
    ids=lambda options: options[-1],
)
def test_gunicorn(serve, children, options):
    pytest.importorskip("gunicorn")
    if "gevent" in options:
        pytest.importorskip("gevent")
    gunicorn = [
        sys.executable,
        "-W",
        "always::DeprecationWarning",
        "-m",
        "gunicorn",
        *options,
        "shop:application",
        "-b",
    ]
    check(*serve, children, gunicorn, None if "--max-requests" in options else signal.SIGHUP)
