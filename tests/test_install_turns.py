"""install() and uninstall() exclude each other, whoever calls them: threads, signal handlers,
forked children, or application code that runs within one of them.
"""

from __future__ import annotations

import sys

import pytest
from tracing import python

WATCHERS = """
import os, signal, sys, threading, time
import probescope

def watchers():
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as file:
                names.append(file.read().strip())
        except OSError:
            pass  # the thread has ended
    return names.count("probescope")

def agrees():
    '''Is there a watcher where one is installed, and none elsewhere? The kernel lists a thread for a
    moment after its end.
    '''
    installed = probescope.status()["installed"]
    deadline = time.monotonic() + 10
    while watchers() != installed and time.monotonic() < deadline:
        time.sleep(0.001)
    return watchers() == installed
"""

THREADS = """
sys.setswitchinterval(1e-5)
for turn in range(60):
    assert probescope.install()
    other = threading.Thread(target=probescope.uninstall)
    other.start()
    while other.is_alive():
        probescope.install()
    other.join()
    assert probescope.install() and probescope.status()["installed"], turn
    assert agrees(), (turn, watchers())
print("ends")
"""

EVERYWHERE = """
sys.setswitchinterval(1e-5)
heard = []

def handler(*_):
    heard.append(probescope.install() if len(heard) % 2 else probescope.uninstall())

def work():
    while not over:
        probescope.install()
        probescope.uninstall()

def child():
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert probescope.install() and probescope.status()["installed"]
    assert agrees(), watchers()
    probescope.uninstall()
    assert agrees() and not probescope.status()["installed"]

import warnings
warnings.simplefilter("ignore")  # os.fork() warns when there are threads
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
over = False
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for turn in range(40):
    pid = os.fork()
    if not pid:
        code = 1
        try:
            child()
            code = 0
        finally:
            os._exit(code)
    probescope.install()
    assert os.waitpid(pid, 0)[1] == 0, turn
    probescope.uninstall()
over = True
for thread in threads:
    thread.join()
signal.setitimer(signal.ITIMER_REAL, 0)
assert agrees() and heard
assert probescope.install() and agrees() and probescope.status()["installed"]
assert probescope.uninstall() and agrees() and not probescope.status()["installed"]
print("ends")
"""


@pytest.mark.smoke
@pytest.mark.parametrize("program", [THREADS, EVERYWHERE], ids=["threads", "signals and forks"])
def test_an_install_beside_an_uninstall(program):
    ran = python("-c", WATCHERS + program)
    assert (ran.returncode, ran.stdout) == (0, "ends\n"), ran.stderr


# Calls install() and uninstall() within changes of hooks: on the worker while tracers attach and
# detach, and within uninstall() on the main thread.
WITHIN = """
import gate, probescope, sys, threading, time

asked = []
def hook(event, arguments):
    if event == "sys.monitoring.register_callback" and len(asked) < 40:
        asked.append(threading.get_ident() == threading.main_thread().ident)
        probescope.install() if len(asked) % 3 else probescope.uninstall()
sys.addaudithook(hook)

def pay():
    pass

while len(asked) < 40:
    time.sleep(0.02)
    probescope.uninstall()
    probescope.install()
probescope.install()
gate.on("function__stats")
pay()
gate.flushed()
gate.done(here=asked.count(True), elsewhere=asked.count(False), installed=probescope.status()["installed"])
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="of another CPython: 3.12 and later")
def test_install_and_uninstall_within_the_change_of_hooks(trace):
    run = trace(WITHIN, {"function__stats": ["function", "calls"]})
    assert run.report["installed"] and run.report["here"] and run.report["elsewhere"]
    assert run.totals("function__stats")["pay"]["calls"] == 1
