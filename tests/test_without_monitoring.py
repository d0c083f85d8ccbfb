"""sys.monitoring is missing or fails. Probes that need it are refused, and the process goes on."""

from __future__ import annotations

import sys

import pytest
from test_safety import report_of
from tracing import start_tracer

pytestmark = [
    pytest.mark.smoke,
    pytest.mark.skipif(sys.version_info < (3, 12), reason="of another CPython: 3.12 and later"),
]

CHANGES = {
    "sys.monitoring is missing": "del sys.monitoring",
    "sys.monitoring does not take callbacks (audit hooks?)": """
def objects(event, arguments):
    if event == "sys.monitoring.register_callback": raise PermissionError(event)
sys.addaudithook(objects)
""",
}

PROGRAM = """
import gate, probescope, sys

@probescope.latency
def named(): return 1
def plain(): return named()

PROBES = "function__stats", "exception__stats", "exception__rescue", "line"
while "off" in map(gate.state, PROBES) or not probescope.latency.probes()["named"]["listened"]:
    plain()
gate.flushed(1)
for _ in range(3): plain()
gate.flushed()
gate.done(states={probe: gate.status(probe) for probe in PROBES},
          latency=probescope.latency.probes()["named"]["error"])
"""


@pytest.mark.parametrize("reason", CHANGES)
def test_refuses_what_needs_it(program, attach, children, reason):
    app = program(f"import sys\n{CHANGES[reason]}\n{PROGRAM}")
    attach(app, "function__stats", "exception__stats", "exception__rescue", "line").attached()
    tracer = start_tracer(app.pid, 'usdt:*:latency:named { printf("named\\n"); }')
    children.append(tracer)
    report = report_of(app)
    for probe in "function__stats", "exception__stats", "exception__rescue", "line":
        assert report["states"][probe] == ["refused", reason]
    assert report["latency"] == reason
    assert app.err == ""
