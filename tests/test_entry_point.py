"""The package that a process was started with. The gem's spec/tracing/entry_point_spec.rb has more."""

import subprocess
import sys
from contextlib import contextmanager

import pytest
from probescope.command.entry_point import globs

WAIT = "import sys\nprint('ready', flush=True)\nsys.stdin.read()\n"
SHOP = ["*/site-packages/shop/*", "*/dist-packages/shop/*"]


@contextmanager
def running(*arguments, cwd):
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, *map(str, arguments)], stdin=pipe, stdout=pipe, cwd=cwd) as child:
        assert child.stdout.readline() == b"ready\n"
        yield child.pid
        child.stdin.close()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__main__.py").write_text(WAIT)
    return tmp_path.resolve()


def test_a_script_in_a_folder_bin_starts_the_package_that_it_imports(folder):
    script = folder / "bin" / "shop"
    script.write_text(f"import re\nif 0:\n    from shop.cli import main\n{WAIT}")
    for words in ([script], ["-X", "utf8", script, "serve"], ["bin/shop"]):
        with running(*words, cwd=folder) as pid:
            assert globs(pid) == SHOP, words
    script.write_text(f"import re\n__requires__ = 'Shop==3.1'\nif 0:\n    import importlib_metadata\n{WAIT}")
    with running(script, cwd=folder) as pid:
        assert globs(pid) == SHOP
    (folder / "shop.py").write_text(script.read_text())
    with running(folder / "shop.py", cwd=folder) as pid:
        assert globs(pid) == []


def test_a_module_is_its_package(folder):
    for words in (["-m", "shop", "serve"], ["-um", "shop"], ["-mshop"]):
        with running(*words, cwd=folder) as pid:
            assert globs(pid) == SHOP, words
    with running("-c", WAIT, cwd=folder) as pid:
        assert globs(pid) == []


def test_what_only_runs_applications_is_none_and_no_link_is_followed(folder):
    (folder / "bin" / "serve").write_text(f"if 0:\n    from gunicorn.app import run\n{WAIT}")
    (folder / "elsewhere").write_text(f"if 0:\n    from shop.cli import main\n{WAIT}")
    (folder / "bin" / "linked").symlink_to(folder / "elsewhere")
    for name in ("serve", "linked"):
        with running(folder / "bin" / name, cwd=folder) as pid:
            assert globs(pid) == [], name
