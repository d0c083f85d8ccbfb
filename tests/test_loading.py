"""Every way to load the probes into a process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import probescope
import pytest
from tracing import ROOT, Child, maps_library, wait_for

PACKAGE = Path(probescope.__file__).parent
STATE = "import sys; print('probescope' in sys.modules and sys.modules['probescope'].status()['installed'])"

# The script that pip generates for an entry point.
ENTRY = "import sys\nfrom probescope.command.entry import main\nsys.exit(main())\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A Python in a virtual environment, with the package where pip installs it."""
    home = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    shutil.copytree(PACKAGE, packages / "probescope", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "python/probescope.pth", packages)
    if not (packages / "probescope/programs").exists():
        shutil.copytree(ROOT / "providers", packages / "probescope/programs")
    command = home / "bin/probescope"
    command.write_text(f"#!{home}/bin/python\n{ENTRY}")
    command.chmod(0o755)
    return home / "bin/python"


@pytest.fixture
def checkout(installed):
    """The environment in which the same Python finds the package without its .pth file."""
    return {"PYTHONPATH": str(PACKAGE.parent)}


def run(*command, cwd=None, **env):
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **env}
    return subprocess.run(
        command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


def out(*command, **options):
    ran = run(*command, **options)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.mark.smoke
def test_the_environment_loads_it_where_it_is_installed(installed):
    assert out(installed, "-c", STATE, PROBESCOPE="1") == "True\n"
    assert out(installed, "-X", "dev", "-W", "error", "-c", STATE, PROBESCOPE="1") == "True\n"
    for unset in ({}, {"PROBESCOPE": "0"}, {"PROBESCOPE": ""}):
        assert out(installed, "-c", STATE, **unset) == "False\n"
    # -I hides the current directory and PYTHON*, but not installed packages. -S hides those.
    assert out(installed, "-I", "-c", STATE, PROBESCOPE="1") == "True\n"
    assert out(installed, "-S", "-c", STATE, PROBESCOPE="1") == "False\n"
    assert out(installed, "-I", "-S", "-E", "-c", STATE, PROBESCOPE="1") == "False\n"


def test_it_brings_few_modules_along(installed):
    # Importing others (sysconfig, re, typing) took fifteen times as long as the rest of the start.
    names = "import sys; print(*sorted(name for name in sys.modules if not name.startswith('probescope')))"
    plain, loaded = (set(out(installed, "-c", names, PROBESCOPE=value).split()) for value in "01")
    assert loaded - plain <= {"__future__", "atexit", "gc"}


def test_what_is_left_of_a_package_breaks_no_interpreter(installed, tmp_path):
    # pip was killed half-way, or the path contains another Python's packages.
    home = tmp_path / "venv"
    shutil.copytree(installed.parent.parent, home, symlinks=True)
    (package,) = home.glob("lib/python*/site-packages/probescope")
    for library in package.glob("_native*.so"):
        library.unlink()
    assert out(home / "bin/python", "-c", STATE, PROBESCOPE="1") == "False\n"
    shutil.rmtree(package)
    assert out(home / "bin/python", "-c", STATE, PROBESCOPE="1") == "False\n"
    # Or the application has another module with that name.
    (tmp_path / "probescope.py").write_text("raise ValueError('not what you want')")
    assert out(installed, "-c", STATE, PROBESCOPE="1", PYTHONPATH=str(tmp_path)) == "False\n"


VIEW = """
import json, sys
main = sys.modules["__main__"]
print(json.dumps([
    sys.argv, sys.path, __name__, vars(main).get("__file__"), main.__spec__ and main.__spec__.name,
    list(sys.flags), sorted(sys.warnoptions), sorted(sys._xoptions), sorted(name for name in vars(main)),
    sys.modules["sitecustomize"].__dict__.get("MARK") if "sitecustomize" in sys.modules else None,
]))
print(sys.modules["probescope"].status()["installed"] if "probescope" in sys.modules else False,
      file=sys.stderr)
sys.exit(7)
"""


@pytest.mark.parametrize("way", ["installed", "checkout"])
def test_run_shows_the_application_what_it_would_see_without(installed, checkout, tmp_path, way):
    (tmp_path / "app").mkdir()
    (tmp_path / "app/view.py").write_text(VIEW)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text("MARK = 'the application has one'")
    python, env = installed, {}
    if way == "checkout":
        # A Python without our .pth file: the one that created the virtual environment.
        python, env = os.path.realpath(installed), checkout
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH"), str(tmp_path / "own")]))
    for options in ([], ["-X", "dev", "-W", "ignore::ImportWarning", "-O"]):
        for application in (["view.py", "a", "-m", "b c"], ["-m", "view", "--help"], ["-c", VIEW, "-p", "1"]):
            plain = run(python, *options, *application, cwd=tmp_path / "app", **env)
            loaded = run(
                python, *options, "-m", "probescope", "run", *application, cwd=tmp_path / "app", **env
            )
            assert (plain.returncode, loaded.returncode) == (7, 7), loaded.stderr
            assert (plain.stderr, loaded.stderr) == ("False\n", "True\n")
            expected, seen = json.loads(plain.stdout), json.loads(loaded.stdout)
            if way == "checkout":
                assert [path for path in seen[1] if path != str(PACKAGE.parent)] == [
                    path for path in expected[1] if path != str(PACKAGE.parent)
                ]
                expected[1] = seen[1]
            assert seen == expected


CHILDREN = """
import json, multiprocessing, os, subprocess, sys

def state(queue=None):
    import probescope
    answer = probescope.status()["installed"] and os.path.exists(f"/proc/{os.getpid()}/maps")
    if queue is None:
        return answer
    queue.put(answer)

if __name__ == "__main__":
    answers = [state()]
    for method in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        process = context.Process(target=state, args=(queue,))
        process.start()
        answers.append(queue.get())
        process.join()
    own = "import sys; sys.exit(not sys.modules['probescope'].status()['installed'])"
    answers.append(subprocess.call([sys.executable, "-c", own]) == 0)
    print(json.dumps(answers))
"""


@pytest.mark.parametrize("way", ["installed", "checkout"])
def test_children_have_it_too_however_they_start(installed, checkout, tmp_path, way):
    (tmp_path / "app.py").write_text(CHILDREN)
    python, env = (installed, {}) if way == "installed" else (os.path.realpath(installed), checkout)
    answers = json.loads(out(python, "-W", "error", "-m", "probescope", "run", "app.py", cwd=tmp_path, **env))
    assert answers == [True] * len(answers)
    assert len(answers) >= 5


def test_run_starts_programs_and_says_what_it_cannot(installed, tmp_path):
    program = tmp_path / "serve"
    program.write_text(
        f"#!{installed}\nimport sys, probescope\nprint(sys.argv[1:], probescope.status()['installed'])\n"
    )
    program.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    command = [installed, "-m", "probescope", "run"]
    assert out(*command, "--", "serve", "-m", "x", PATH=path) == "['-m', 'x'] True\n"
    functions = "import os; print(os.environ['PROBESCOPE_FUNCTIONS'])"
    assert out(*command, "--functions", "a,b", "-c", functions) == "a,b\n"
    ran = run(*command, "nothing-like-it")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "there is no file and no program 'nothing-like-it'\n  try: " in ran.stderr


def test_run_starts_a_python_by_its_path_and_scripts_of_other_languages(installed, tmp_path):
    """As the gem's `run` does. The interpreter would treat them as Python files ("source code
    cannot contain null bytes").
    """
    (tmp_path / "app.py").write_text(
        "import sys, probescope\nprint(sys.argv, probescope.status()['installed'])\n"
    )
    (tmp_path / "app.sh").write_text(f'#!/bin/sh\nexec {installed} "$@"\n')
    (tmp_path / "app.sh").chmod(0o755)
    for program in (installed, "./app.sh"):
        command = [installed, "-m", "probescope", "run", "--", program, "app.py", "-m"]
        assert out(*command, cwd=tmp_path) == "['app.py', '-m'] True\n"
    # `run` must not read from a pipe, because the interpreter reads it.
    piped = f"exec {installed} -m probescope run <(echo 'print(1)')"
    assert out("bash", "-c", piped) == "1\n"
    (tmp_path / "app").write_bytes(b"\x7fELF\0")
    ran = run(installed, "-m", "probescope", "run", "./app", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert (
        "'./app' is neither a Python file nor executable\n  try: check its name, or chmod +x ./app"
        in ran.stderr
    )


def test_the_command_imports_nothing_from_the_current_folder_or_of_the_user(installed, tmp_path):
    command = Path(installed).with_name("probescope")
    trap = "open('/proc/self/cwd/trapped', 'w')\n"
    for name in ("probescope", "subprocess", "argparse", "sitecustomize", "usercustomize", "json"):
        (tmp_path / f"{name}.py").write_text(trap)
    user = tmp_path / f"home/.local/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    user.mkdir(parents=True)
    (user / "usercustomize.py").write_text(trap)
    for words in (["--version"], ["script"], ["doctor", "--json"], ["trace", "exceptions", "-p", "0"]):
        ran = run(command, *words, cwd=tmp_path, HOME=str(tmp_path / "home"), PYTHONSAFEPATH="")
        assert "Traceback" not in ran.stderr, ran.stderr
        assert not (tmp_path / "trapped").exists(), words
    assert out(command, "--version", cwd=tmp_path).startswith("probescope ")
    # The application gets the interpreter options that were given, and none that the command added.
    assert out(command, "run", "-c", "import sys; print(sys.flags.isolated)") == "0\n"
    # Root does not run a package that one user has installed for himself.
    own = run(installed, "-c", OF_USER, str(Path(_package(installed)).resolve().parent.parent))
    assert "installed for one user" in own.stderr and own.returncode == 1


# Runs the entry point as if its package lay in the user's site-packages.
OF_USER = """
import site, sys
site.ENABLE_USER_SITE = True
site.getusersitepackages = lambda: sys.argv[1]
from probescope.command.entry import main
main()
"""


def _package(python):
    return out(python, "-c", "import probescope; print(probescope.__file__)").strip()


def test_functions_of_a_script_that_is_elsewhere_are_covered(bpf, installed, tmp_path, children):
    # probescope is loaded before __main__ exists, with / as the current directory.
    (tmp_path / "app.py").write_text(
        "import time\n\ndef serve():\n    pass\n\nprint('up', flush=True)\n"
        "while True:\n    serve()\n    time.sleep(0.001)\n"
    )
    env = {"PATH": os.environ["PATH"], "PROBESCOPE": "1"}
    children.append(Child([installed, tmp_path / "app.py"], env=env, cwd="/"))
    children[-1].line("up")
    assert maps_library(children[-1].pid)
    traced = run(installed, "-m", "probescope", "trace", "calls", "-p", str(children[-1].pid), "-d", "1")
    assert re.search(r" serve +\S*app\.py:3$", traced.stdout, re.MULTILINE), traced


IDLE = """
import sys, time
before = list(sys.path)
print("up", flush=True)
while "probescope" not in sys.modules or sys.path != before:
    time.sleep(0.002)
print("loaded", sys.modules["probescope"].status()["installed"], sorted(vars(sys.modules["__main__"])),
      sys.path, flush=True)
time.sleep(1000)
"""


def test_attach_loads_it_into_a_process_that_never_imported_it(bpf, installed, tmp_path, children):
    """Also into a process whose Python does not have the package installed."""
    (tmp_path / "app.py").write_text(IDLE)
    bare = os.path.realpath(installed)
    plain = out(bare, "-I", "-c", "import json, sys; print(json.dumps(sys.path))")
    children.append(
        Child([bare, "-I", "-W", "always", "-X", "dev", tmp_path / "app.py"], env={"LANG": "C.UTF-8"})
    )
    idle = children[-1]
    idle.line("up")
    env = {"PYTHONPATH": str(PACKAGE.parent), "TMPDIR": str(tmp_path)}
    ran = run(sys.executable, "-m", "probescope", "attach", str(idle.pid), **env)
    if sys.version_info < (3, 14):
        assert (ran.returncode, ran.stdout) == (1, "")
        assert "takes Python 3.14 or later" in ran.stderr
        assert "try: restart the process with PROBESCOPE=1" in ran.stderr
        return
    assert (ran.returncode, ran.stderr) == (0, "")
    names = [
        "__builtins__",
        "__cached__",
        "__doc__",
        "__file__",
        "__loader__",
        "__name__",
        "__package__",
        "__spec__",
        "before",
        "sys",
        "time",
    ]
    loaded = idle.line("loaded ")
    assert loaded.startswith("True ")
    assert loaded.split(" ", 1)[1].startswith(str([name for name in names if name in loaded]))
    assert loaded.endswith(plain.strip().replace('"', "'"))
    assert idle.err == ""
    again = run(sys.executable, "-m", "probescope", "attach", str(idle.pid), PYTHONPATH=str(PACKAGE.parent))
    assert (again.returncode, again.stdout) == (0, f"process {idle.pid} has probescope loaded already\n")
    traced = run(installed, "-m", "probescope", "trace", "calls", "-p", str(idle.pid), "-d", "1")
    assert traced.returncode == 0, traced.stderr
    wait_for("the end of tracing", lambda: '"listened": true' not in status(installed, idle.pid))

    # Failures are reported.
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    program = "import time; print('up', flush=True); time.sleep(1000)"
    for before, options, reason in (
        (
            [],
            ["-X", "disable-remote-debug"],
            "was started with PYTHON_DISABLE_REMOTE_DEBUG or -X disable-remote-debug",
        ),
        (nobody, [], "cannot read"),
    ):
        children.append(Child([*before, bare, *options, "-c", program], env={"LANG": "C.UTF-8"}, cwd="/"))
        children[-1].line("up")
        ran = run(installed, "-m", "probescope", "attach", str(children[-1].pid), TMPDIR=str(tmp_path))
        assert (ran.returncode, ran.stdout) == (1, "")
        assert re.match(rf"probescope: process {children[-1].pid} {reason}.*\n  try: ", ran.stderr)
    assert not list(tmp_path.glob("probescope-attach-*"))


def status(python, pid):
    return run(python, "-m", "probescope", "status", "-p", str(pid), "--json").stdout
