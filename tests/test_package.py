"""The package from an application's view. Each test runs a Python of its own."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import probescope
import pytest
from tracing import python


def report(source, *options, **env):
    """Returns the JSON that a program prints. The program must succeed with an empty stderr."""
    ran = python("-W", "error", *options, "-c", source, env=env)
    assert (ran.returncode, ran.stderr) == (0, "")
    return json.loads(ran.stdout)


INSTALL = """
import json, threading, probescope
before = probescope.status()
answers = [probescope.install(), probescope.install(), probescope.install(force=True)]
during = probescope.status()
answers += [threading.active_count(), probescope.uninstall(), probescope.uninstall()]
print(json.dumps([answers, before, during, probescope.status()]))
"""


@pytest.mark.smoke
@pytest.mark.parametrize("options", [[], ["-X", "dev"], ["-I", "-S"]], ids=" ".join)
def test_installs_once_and_silently_and_uninstalls(options):
    # With -I and -S Python does not find the package, so its path is added.
    place = f"import sys; sys.path.insert(0, {str(Path(probescope.__file__).parent.parent)!r})\n"
    answers, before, during, after = report(place + INSTALL, *options, PROBESCOPE_MEMORY="1M")
    assert answers == [True, True, True, 1, True, False]
    assert [status["installed"] for status in (before, during, after)] == [False, True, False]
    assert all(status["available"] and status["reason"] is None for status in (before, during, after))
    assert during["memory_limit"] == 1 << 20
    assert during["version"] == after["version"]
    assert {state for state, _ in during["probes"].values()} <= {"off", "degraded", "refused", "unsupported"}


def test_refuses_a_python_that_is_too_old():
    ran = python("-c", "import sys; sys.version_info = (3, 10, 14, 'final', 0); import probescope")
    assert ran.returncode == 1
    assert re.search(
        r"^ImportError: probescope needs Python 3\.11 or later, and this is \S+$", ran.stderr, re.MULTILINE
    )
    text = (Path(__file__).parent.parent / "setup.py").read_text().replace("(3, 11)", "(9, 0)")
    built = python("-c", text)
    assert built.returncode == 1
    assert re.search(r"^probescope needs Python 3\.11 or later, and \S+ is \S+$", built.stderr, re.MULTILINE)


@pytest.mark.parametrize("memory", ["99999999999999999999999K", "0", "-1", "much", "", "٣"])
def test_takes_any_setting_of_the_environment(memory):
    installed, limit = report(
        "import json, probescope; "
        "print(json.dumps([probescope.install(), probescope.status()['memory_limit']]))",
        PROBESCOPE_MEMORY=memory,
        PROBESCOPE_FUNCTIONS=",,/,*,\udcff",
        PROBESCOPE_ROOT="/nowhere\n",
        PROBESCOPE_FORCE="maybe",
    )
    assert installed
    assert limit > 0


def test_says_what_is_wrong_with_patterns():
    for wrong in (None, "some", ["a\0b"], [1], ("own",)):
        with pytest.raises(probescope.Error, match=r"set_functions\(\) wants"):
            probescope.set_functions(wrong)
    assert probescope.functions() == "own"


SUBINTERPRETER = """
import json, os
try:
    import _interpreters as interpreters
except ImportError:
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        import _interpreters as interpreters
import probescope
read, write = os.pipe()
source = '''
import os, probescope
installed = probescope.install()
os.write(%d, repr([installed, probescope.unavailable_reason(), probescope.uninstall()]).encode() + b"\\\\n")
''' % write
configs = CONFIGS
for config in configs:
    interpreter = interpreters.create(*config)
    (getattr(interpreters, "exec", None) or interpreters.run_string)(interpreter, source)
    interpreters.destroy(interpreter)
probescope.install()
answers = os.read(read, 10000).decode().splitlines()
print(json.dumps([answers, probescope.status()["installed"]]))
"""


def test_a_subinterpreter_gets_a_reason_and_the_main_one_works_on():
    # From 3.13 on, a subinterpreter may have its own GIL, or share the main one as under mod_wsgi.
    configs = '[["isolated"], ["legacy"]]' if sys.version_info >= (3, 13) else "[[]]"
    ran = python("-c", SUBINTERPRETER.replace("CONFIGS", configs))
    assert ran.returncode == 0, ran.stderr
    answers, installed = json.loads(ran.stdout)
    assert len(answers) == len(ast.literal_eval(configs))
    for answer in map(ast.literal_eval, answers):
        assert (answer[0], answer[2]) == (False, False)
        assert "subinterpreter" in answer[1]
    assert installed


def test_the_stub_tells_of_all_that_the_extension_has():
    from probescope import _native

    stub = ast.parse(Path(probescope.__file__).with_name("_native.pyi").read_text())
    told = {node.name for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    told |= {node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)}
    assert told == {name for name in vars(_native) if not name.startswith("__")}
