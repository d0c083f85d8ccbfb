from __future__ import annotations

import os
import re
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor

from hostile_programs import HOSTILE_PROGRAMS
from probescope.abi import PROBES
from tracing import ENVIRONMENT, ROOT, Child

ONLY = os.environ.get("PROBESCOPE_HOSTILE", "")
# Without a GIL, modules are not freed one by one, but by the last collection. The hooks are removed
# when the extension's module is freed, so they stay until then.
LEFT_OUT = ["atexit handlers are thrown away"] if sysconfig.get_config_var("Py_GIL_DISABLED") else []
# AddressSanitizer itself would run out of memory.
LEFT_OUT += ["memory is short"] if "ASAN_OPTIONS" in os.environ else []


def outcome(directory, source, options, **env):
    """Returns the output and the exit status. Addresses and PIDs, which differ each time, are
    replaced.
    """
    path = directory / "app.py"
    path.write_text(source)
    paths = [ROOT / "tests/listening", ROOT / "tests", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(map(str, paths)), **env}
    child = Child([sys.executable, *options, str(path)], env=environment, cwd=directory)
    try:
        status = child.wait(120)
    finally:
        child.kill()
    texts = [
        re.sub(r"(?<=pid=)\d+|0x[0-9a-f]+|app\.pyz|/tmp/tmp\w+", "N", text) for text in (child.out, child.err)
    ]
    return {"out": texts[0], "err": texts[1], "status": status}


def test_hostile_programs_write_and_end_with_everything_attached_as_they_do_without_us(
    program, attach, tmp_path
):
    keeper = program("import gate\ngate.done()\n")
    tracer = attach(keeper, *PROBES, by_path=True).attached()

    def differences(item):
        number, (name, (source, options)) = item
        directory = tmp_path / str(number)
        directory.mkdir()
        plain = outcome(directory, source, options)
        traced = outcome(directory, source, options, TRACED="1")
        return name, {key: (plain[key], traced[key]) for key in plain if plain[key] != traced[key]}

    wanted = [item for item in HOSTILE_PROGRAMS.items() if ONLY in item[0] and item[0] not in LEFT_OUT]
    with ThreadPoolExecutor(4) as pool:
        found = dict(pool.map(differences, enumerate(wanted)))
    assert {name: difference for name, difference in found.items() if difference} == {}
    tracer.process.stdin.write(b"count\n")
    tracer.process.stdin.flush()
    assert int(tracer.line("count=")) > 0
