"""Which code counts as the application's own."""

import os
import sys
import types

import pytest
from probescope._coverage import Coverage


def roots(monkeypatch, script, folder, **environment):
    """Returns the roots for `python SCRIPT`, started in a folder."""
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
    """GIVEN an image with its application in /, WHEN the application is started there, THEN the
    script belongs to the application, and the system does not.
    """
    assert roots(monkeypatch, script, "/", **environment) == found
