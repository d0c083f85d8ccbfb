"""What probescope.otel publishes for outside tools, as an outside reader sees it."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk")

ROOT = Path(__file__).parent.parent
PROGRAM = """
import asyncio, sys, threading
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

resource = Resource.create({"service.name": "shop", "n": 3, "list": ["a", "b"]})
trace.set_tracer_provider(TracerProvider(resource=resource))
import probescope.otel

assert probescope.otel.install() and probescope.otel.install()
span = trace.get_tracer("spec").start_as_current_span


def at(name):
    context = trace.get_current_span().get_span_context()
    said = "none"
    if context.is_valid:
        said = f"{context.trace_id:032x} {context.span_id:016x} {context.trace_flags:02x}"
    print("at", name, threading.get_native_id(), said, flush=True)
    sys.stdin.readline()


async def task(name):
    at(f"bare_{name}")
    with span(name):
        at(name)
        await asyncio.sleep(0.01)
        at(f"{name}_again")


async def tasks():
    await asyncio.gather(task("one"), task("two"))
    at("after_tasks")


def in_thread():
    at("bare_thread")
    with span("thread"):
        at("thread")


at("start")
with span("outer"):
    at("outer")
    with span("inner"):
        at("inner")
    at("outer_again")
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
asyncio.run(tasks())
with span("last"):
    asyncio.run(tasks())
at("end")
"""


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    if platform.machine() != "x86_64":
        pytest.skip("the reader is for x86-64")
    program = tmp_path_factory.mktemp("reader") / "thread_record"
    subprocess.run(["cc", "-O1", "-o", program, ROOT / "spec/support/thread_record.c"], check=True)
    return program


def test_the_current_span_of_threads_and_tasks_is_seen_from_outside(reader):
    import probescope._native

    seen = []
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout:
            _, name, thread, inside = line.rstrip("\n").split(" ", 3)
            command = [reader, str(process.pid), thread, probescope._native.__file__]
            outside = subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip("\n")
            seen.append((name, outside, inside))
            process.stdin.write("on\n")
            process.stdin.flush()
    assert process.returncode == 0
    assert [one for one in seen if one[1] != one[2]] == []
    assert len(seen) == 21 and len({inside for _, _, inside in seen}) == 9
