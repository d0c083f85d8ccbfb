"""What is taken for the application's own code."""

import os
import sys
import types

import pytest
from probescope._coverage import Coverage


def roots(monkeypatch, script, folder, **environment):
    """The roots of a script that is started as `python SCRIPT` in a folder."""
    monkeypatch.chdir(folder)
    main = types.ModuleType("__main__")
    main.__file__ = script
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(os.path, "isfile", lambda _: True)
    return Coverage(environment).roots()


def test_the_working_directory_and_the_scripts_are_the_applications(monkeypatch):
    assert roots(monkeypatch, "/srv/shop/app.py", "/tmp") == ["/srv/shop/", "/tmp/"]


@pytest.mark.parametrize(
    ("script", "environment", "found"),
    [
        ("app.py", {}, ["/app.py"]),
        ("/usr/local/bin/gunicorn", {}, ["/usr/local/bin/"]),
        ("app.py", {"PROBESCOPE_ROOT": "/"}, ["/", "/app.py"]),
    ],
)
def test_of_the_root_directory_it_is_the_script_alone(monkeypatch, script, environment, found):
    """GIVEN an image with its application in /, WHEN that is started there, THEN the script is the
    application, the system is not.
    """
    assert roots(monkeypatch, script, "/", **environment) == found
