"""Which functions the function probes cover."""

from __future__ import annotations

import os
import site
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping


class Coverage:
    """The setting ("own", "all" or a list of globs), and the directories that it stands for."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._functions = _parse(environment.get("PROBESCOPE_FUNCTIONS", ""))
        self._applied: tuple[Any, ...] | None = None

    @property
    def functions(self) -> str | list[str]:
        return self._functions

    @functions.setter
    def functions(self, value: str | list[str]) -> None:
        from probescope import Error

        is_list = isinstance(value, list) and all(
            isinstance(glob, str) and "\0" not in glob for glob in value
        )
        if value not in ("own", "all") and not is_list:
            raise Error(f'set_functions() wants "own", "all" or a list of globs, not {value!r}')
        self._functions = value

    def apply(self, native: Any) -> None:
        """Passes the setting to the extension, which then reinstalls its hooks. Does nothing when
        the setting has not changed.
        """
        wanted = (self.roots(), self.outside(), [_directory(os.path.dirname(__file__))], self._patterns())
        if wanted != self._applied:
            native.cover(*wanted)
            self._applied = wanted

    def roots(self) -> list[str]:
        """Directories of the application: PROBESCOPE_ROOT, the directory of the started script, and
        the current directory.

        "/" is a root only when PROBESCOPE_ROOT names it. If the script lies in "/", as in many
        container images, then only the script belongs to the application, and no other file in "/".
        """
        script = _started_script()
        candidates = [_current_directory(), os.path.dirname(script) if script else None]
        found = {_directory(path) for path in candidates if path} - {"/"}
        if script and os.path.dirname(script) == "/":
            found.add(script)
        asked = self._environment.get("PROBESCOPE_ROOT")
        return sorted(found | {_directory(asked)} if asked else found)

    def outside(self) -> list[str]:
        """Directories that never belong to the application: the standard library and installed
        packages.
        """
        # sysconfig gives the same paths, but takes longer than all the rest of this method.
        paths = [os.path.dirname(os.__file__), *getattr(site, "getsitepackages", list)()]
        if sys.prefix != sys.base_prefix:
            paths.append(os.path.join(sys.prefix, "bin"))  # a virtualenv's scripts: gunicorn, celery
        paths += [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
        return sorted({_directory(path) for path in paths if path})

    def _patterns(self) -> list[str] | None:
        if self._functions == "own":
            return None
        if self._functions == "all":
            return ["*"]
        return [_anchored(glob) for glob in self._functions]


def _parse(text: str) -> str | list[str]:
    text = text.strip()
    if text in ("", "own"):
        return "own"
    if text == "all":
        return "all"
    return [glob.strip() for glob in text.split(",") if glob.strip()]


def _anchored(glob: str) -> str:
    """A glob like "app/models/*" matches every path that ends so, in any parent directory."""
    is_path = "/" in glob or glob.endswith(".py")
    return f"*/{glob}" if is_path and not glob.startswith(("/", "*")) else glob


def _directory(path: str) -> str:
    return os.path.abspath(path).rstrip("/") + "/"


def _current_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # the directory was removed
        return None


def _started_script() -> str | None:
    """Returns the absolute path of the script.

    While a .pth file loads probescope there is no __main__ yet; sys.argv names the script.
    """
    main = sys.modules.get("__main__")
    started = getattr(main, "__file__", None) or next(iter(getattr(sys, "argv", [])), None)
    return os.path.abspath(started) if isinstance(started, str) and os.path.isfile(started) else None
