"""A function has the same name in all probes, and so has a class. No name contains an address."""

from __future__ import annotations

import sys
import sysconfig

HAS_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")
KNOWS_CLASSES = sys.version_info >= (3, 13) and HAS_GIL

# Each form raises, formats a stack, and spends some ms in C, so that every probe reports it.
SHOP = """
import asyncio, functools, hashlib, traceback

def work():
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", 8_000)

def plain():
    work(), traceback.format_stack(), 1 / 0

class Shop:
    def method(self):
        work(), traceback.format_stack(), 1 / 0

    @classmethod
    def of_class(cls):
        work(), traceback.format_stack(), 1 / 0

    @staticmethod
    def static():
        work(), traceback.format_stack(), 1 / 0

    @property
    def attribute(self):
        work(), traceback.format_stack(), 1 / 0

    def __call__(self):
        work(), traceback.format_stack(), 1 / 0

    class Inner:
        def method(self):
            work(), traceback.format_stack(), 1 / 0

shortest = lambda: (work(), traceback.format_stack(), 1 / 0)

def outer():
    def nested():
        work(), traceback.format_stack(), 1 / 0
    return nested

def generates():
    yield 1
    work(), traceback.format_stack(), 1 / 0

async def awaits():
    await asyncio.sleep(0)
    work(), traceback.format_stack(), 1 / 0

async def generates_async():
    yield 1
    work(), traceback.format_stack(), 1 / 0

def class_body():
    class Body:
        work(), traceback.format_stack(), 1 / 0

def decorate(function):
    @functools.wraps(function)
    def wrapper():
        work(), traceback.format_stack(), 1 / 0
    return wrapper

@decorate
def decorated(): pass

def by_key(item):
    work(), traceback.format_stack(), 1 / 0

made = {"__name__": __name__}
exec(compile("def evaluated():\\n  work(), traceback.format_stack(), 1 / 0", __file__, "exec"), made, made)
made.update(work=work, traceback=traceback)
Made = type("Made", (), {"__call__": lambda self: (work(), traceback.format_stack(), 1 / 0)})

async def consume():
    async for _ in generates_async(): pass

FORMS = [
    plain, Shop().method, Shop.of_class, Shop.static, lambda: Shop().attribute, Shop(), Shop.Inner().method,
    shortest, outer(), lambda: list(generates()), lambda: asyncio.run(awaits()),
    lambda: asyncio.run(consume()), class_body, decorated, functools.partial(by_key, 1),
    lambda: sorted([1], key=by_key), made["evaluated"], Made(),
]
"""

NAMES = {
    "shop.plain", "shop.Shop.method", "shop.Shop.of_class", "shop.Shop.static", "shop.Shop.attribute",
    "shop.Shop.__call__", "shop.Shop.Inner.method", "shop.<lambda>", "shop.outer.<locals>.nested",
    "shop.generates", "shop.awaits", "shop.generates_async", "shop.class_body.<locals>.Body",
    "shop.decorate.<locals>.wrapper", "shop.by_key", "shop.evaluated",
}  # fmt: skip


def names(run, probe, field="function"):
    """Returns the names of the forms, without the functions that call them."""
    callers = {"shop.work", "shop.class_body", "shop.consume"}
    return {event[field] for event in run.events(probe) if event["file"].endswith("/shop.py")} - callers


def test_a_function_has_one_name_whichever_probe_tells_of_it(trace, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    fields = {
        "function__stats": ["function", "file"],
        "function__entry": ["function", "file"],
        "function__slow1ms": ["function", "file"],
        "exception__stats": ["function", "file"],
        "exception__raise": ["function", "file"],
        "exception__detail": ["function", "file"],
        "backtrace__done": ["function", "file"],
        "line": ["function", "file"],
        **({"sample__stats": ["function", "file"]} if HAS_GIL else {}),
    }
    run = trace(
        f"""
import gate, shop
gate.on(*{list(fields)})
gate.flushed(1)
for _ in range(15):
    for form in shop.FORMS:
        try: form()
        except ZeroDivisionError: pass
gate.done()
""",
        fields,
        env={"PROBESCOPE_FORCE": "1"},
    )
    assert {probe: names(run, probe) for probe in fields if not probe.startswith("sample")} == {
        probe: NAMES for probe in fields if not probe.startswith("sample")
    }
    # Sampling may miss a form.
    assert names(run, "sample__stats") <= NAMES and len(names(run, "sample__stats")) > 8 or not HAS_GIL
    assert " at 0x" not in run.tracer.out and "0x0" not in run.tracer.out


def test_a_class_that_is_renamed_has_its_new_name_from_then_on(trace):
    fields = {
        "exception__stats": ["type", "raised"],
        "exception__detail": ["type"],
        **({"object__stats": ["class", "allocated"]} if KNOWS_CLASSES else {}),
    }
    run = trace(
        f"""
import gate
class Failure(Exception): pass
class Thing:
    def __init__(self): self.own = {{}}
def make(times):
    for _ in range(times):
        Thing()
        try: raise Failure
        except Failure: pass
gate.on(*{list(fields)})
gate.flushed(1)
make(5)
gate.flushed(1)
Failure.__qualname__, Thing.__qualname__ = "Shop.Refused", "Shop.Item"
make(3)
gate.done()
""",
        fields,
    )
    raised = run.totals("exception__stats")
    assert {name: row["raised"] for name, row in raised.items()} == {"Failure": 5, "Shop.Refused": 3}
    assert {e["type"] for e in run.events("exception__detail")} == {"Failure", "Shop.Refused"}
    if KNOWS_CLASSES:
        made = run.totals("object__stats")
        assert (made["Thing"]["allocated"], made["Shop.Item"]["allocated"]) == (5, 3)


def test_a_class_has_one_name_whichever_probe_tells_of_it(trace, tmp_path):
    (tmp_path / "shop.py").write_text("""
class Failure(Exception): pass
class Shop:
    class Failure(Exception): pass
def makes():
    class Failure(Exception): pass
    return Failure
Made = type("Made", (Failure,), {})
KINDS = [Failure, Shop.Failure, makes(), Made, KeyError]
""")
    fields = {
        "exception__stats": ["type", "file", "raised"],
        "exception__detail": ["type", "file"],
        "backtrace__done": ["type", "file"],
        **({"object__stats": ["class", "file"]} if KNOWS_CLASSES else {}),
    }
    run = trace(
        f"""
import gate, shop, traceback
gate.on(*{list(fields)})
gate.flushed(1)
for kind in shop.KINDS:
    try: raise kind("x")
    except kind: traceback.format_exc()
gate.done()
""",
        fields,
    )
    expected = {"shop.Failure", "shop.Shop.Failure", "shop.makes.<locals>.Failure", "shop.Made", "KeyError"}
    for probe in ("exception__stats", "exception__detail", "backtrace__done"):
        assert {e["type"] for e in run.events(probe) if e["file"].endswith("/app.py")} == expected, probe
    if KNOWS_CLASSES:
        assert expected <= {e["class"] for e in run.events("object__stats") if e["file"].endswith("/app.py")}
