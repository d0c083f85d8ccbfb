from __future__ import annotations

import os
import re

import pytest
from tracing import python, start_tracer, stop_tracer, wait_for

SHOP = """
import os, sys, threading, time
import probescope
shop = probescope.Provider("shop")
checkout = shop.probe("checkout", str, int, float)
sizes = shop.probe("sizes", "int8", "uint8", "int16", "uint16", "int32", "uint32")
many = shop.probe("many", *["uint64"] * 12)
plain = shop.probe("plain")
assert shop.load(), shop.error
print("ready", shop.path, flush=True)
asked = 0
child = os.fork() if "fork" in sys.argv else None
parent = os.getppid()

def ask():
    global asked
    asked += 1
    return None, asked, -0.0

def fire():
    checkout.fire("basket", -3, 1.5)
    checkout.fire(b"caf\\xc3\\xa9", 2**62, 2)
    checkout(ask)
    checkout.fire("wrong", "type", 1.0)
    checkout.fire("wrong count")
    checkout.fire("a\\udcffz", 1, 1.0)
    checkout(lambda: "not enough")
    checkout("not callable")
    sizes.fire(-128, 255, -32768, 65535, -(2**31), 2**32 - 1)
    sizes.fire(-129, 0, 0, 0, 0, 0)
    sizes.fire(0, 0, 0, 2**80, 0, 0)
    many.fire(*(2**64 - i for i in range(1, 13)))
    plain.fire()

end = os.path.join(os.path.dirname(__file__), "end")
other = threading.Thread(
    target=lambda: [fire() or time.sleep(0.002) for _ in iter(lambda: os.path.exists(end), True)])
other.start()
while not os.path.exists(end) and (child != 0 or os.getppid() == parent):
    fire()
    time.sleep(0.005)
other.join()
print("asked", asked, "dropped", shop.dropped, checkout.dropped, flush=True)
if child: os.waitpid(child, 0)
# An exception of the callable reaches the application. The other callable unloads its own provider.
try: raised = plain(lambda: 1 / 0)
except ZeroDivisionError: raised = "raised"
print("unloaded", raised, plain(lambda: (shop.unload(), ())[1]), shop.path, plain.enabled, flush=True)
"""


@pytest.mark.smoke
def test_arguments_of_every_type_arrive_and_wrong_ones_are_counted(bpf, program, children, tmp_path):
    app = program(SHOP, env={"XDG_RUNTIME_DIR": str(tmp_path)})
    path = app.line("ready ")
    assert path.startswith(str(tmp_path / "probescope" / "shop-"))
    tracer = start_tracer(
        app.pid,
        r"""
usdt:*:shop:checkout { printf("<%s> %ld %lx\n", str(arg0), arg1, arg2); }
usdt:*:shop:sizes { printf("%d %u %d %u %d %u\n", arg0, arg1, arg2, arg3, arg4, arg5); }
usdt:*:shop:many { printf("many %lx %lx\n", arg0, arg5); }
usdt:*:shop:plain { @plain = count(); }
""",
    )
    children.append(tracer)
    for line in (
        "many ffffffffffffffff fffffffffffffffa",
        "<basket> -3 3ff8000000000000",
        "<caf\u00e9> 4611686018427387904 4000000000000000",
        "-128 255 -32768 65535 -2147483648 4294967295",
        "<a?z> 1 3ff0000000000000",
    ):
        wait_for(f"{line} of {tracer}", lambda: f"{line}\n" in tracer.out)  # noqa: B023
    wait_for(
        "what a callable returned",
        lambda: re.search(r"^<> [1-9]\d* 8000000000000000$", tracer.out, re.MULTILINE),
    )
    (tmp_path / "end").touch()
    asked, _, dropped, of_checkout = app.line("asked ").split()
    assert int(asked) > 0 and 0 < int(of_checkout) < int(dropped)
    assert app.line("unloaded ") == "raised False None False"
    assert app.wait() == 0, app
    stop_tracer(tracer)
    assert "wrong" not in tracer.out and "not enough" not in tracer.out
    assert not app.err and not os.listdir(tmp_path / "probescope")


def test_a_tracer_by_path_reaches_a_forked_child(bpf, program, children, tmp_path):
    app = program(SHOP.replace('"fork" in sys.argv', "True"), env={"XDG_RUNTIME_DIR": str(tmp_path)})
    tracer = start_tracer(
        None,
        f"usdt:{app.line('ready ')}:shop:plain "
        '{ @[pid] = count(); if (@n != pid) { printf("from %d\\n", pid); } @n = pid; }',
    )
    children.append(tracer)
    wait_for(f"two processes of {tracer}", lambda: len(set(tracer.out.split("from ")[1:])) == 2)
    stop_tracer(tracer)
    (tmp_path / "end").touch()
    assert app.wait() == 0, app
    assert not os.listdir(tmp_path / "probescope")


@pytest.mark.smoke
def test_what_is_wrong_is_raised_in_development_and_in_definitions():
    source = """
import probescope
from probescope.provider import set_strict
def said(what):
    try: print(what())
    except Exception as error: print(f"{type(error).__name__}: {error}")
shop = probescope.Provider("shop")
checkout = shop.probe("checkout", str, "uint8")
said(shop.load)
said(lambda: checkout.fire("right", 255))
said(lambda: checkout.fire("wrong", 256))
said(lambda: checkout.fire(1, 1))
said(lambda: checkout.fire("one"))
said(lambda: checkout("not callable"))
said(lambda: checkout(lambda: 1 / 0))
said(lambda: checkout.dropped)
said(lambda: probescope.Provider("a b").load())
said(lambda: probescope.Provider("a").probe("x y"))
said(lambda: probescope.Provider("a").probe("x", list))
said(lambda: probescope.Provider("a").probe("x", *[int] * 13))
said(lambda: shop.probe("late"))
said(lambda: [probescope.Provider(f"p{i}").load() for i in range(300)].count(True))
"""
    production, development = python("-c", source), python("-X", "dev", "-c", source)
    assert (production.stderr, development.stderr) == ("", "")
    assert development.stdout.splitlines()[:8] == [
        "True",
        "False",
        "TypeError: argument 1 of probe checkout has to be an int that fits uint8, not 256",
        "TypeError: argument 0 of probe checkout has to be a str, bytes or None, not 1",
        "TypeError: probe checkout takes 2 arguments, not 1",
        "TypeError: probe checkout is called with one callable, which returns its arguments",
        "False",
        "4",
    ]
    definitions = development.stdout.splitlines()[8:]
    for line, start in zip(
        definitions,
        ("no name: 'a b'", "no name: 'x y'", "no such type", "13 arguments", "provider shop is"),
    ):
        assert line.startswith(f"Error: {start}"), definitions
    assert definitions[5] == "300"
    # Without a tracer, arguments are not checked. Only the call without a callable is counted.
    assert production.stdout.splitlines()[:8] == ["True", *["False"] * 6, "1"]
    assert production.stdout.splitlines()[8:] == definitions
    assert python("-c", source, env={"PROBESCOPE_STRICT": "1"}).stdout == development.stdout


@pytest.mark.smoke
def test_it_runs_no_method_of_what_it_is_given_and_takes_just_the_ints_of_a_type():
    source = r"""
import copy, os, pickle
import probescope
def said(what):
    try: print(what())
    except Exception as error: print(f"{type(error).__name__}: {error}")
def ran(*_, **__): os._exit(9)
names = ("str repr int index float bytes bool len iter getattr getattribute hash eq format call fspath "
         "trunc ceil").split()
class Meta(type): __repr__ = __str__ = ran
evil = {f"__{name}__": ran for name in names}
a = probescope.Provider("shop").probe("a", str, float)
for base in (str, bytes, object):
    value = Meta("Evil", (base,), dict(evil))()
    said(lambda: a.fire(value, 1))
number = Meta("Number", (int,), dict(evil))(5)
said(lambda: probescope.Provider("n").probe("n", int).fire(number))
for text in ("a\0b", "\ud800", "x" * 5000, b"\xff\0", None): said(lambda: a.fire(text, float("nan")))
said(lambda: a.fire(bytearray(b"x"), 1))
said(lambda: a.fire("", 10**5000))
said(lambda: a.fire("", text="x"))
said(lambda: a(print, 1))
for bits in (8, 16, 32, 64):
    for name, least, most in ((f"int{bits}", -(2 ** (bits - 1)), 2 ** (bits - 1) - 1),
                              (f"uint{bits}", 0, 2**bits - 1)):
        one = probescope.Provider("of").probe("one", name)
        for value in (least, most, True): one.fire(value)
        for value in (least - 1, most + 1, -(10**5000), None, 1.0, "1"):
            try: print(name, value, one.fire(value))
            except TypeError: pass
        if one.dropped != 6: print(name, one.dropped)
for name in ("a\0b", "\udcff", "a\n", "\u0661", "", "a" * 128, None, b"a"):
    said(lambda: probescope.Provider(name))
for name in ("b\0c", "b\udcff"): said(lambda: probescope.Provider("a").probe(name))
for kind in (bool, [int], "int65", None): said(lambda: probescope.Provider("a").probe("a", kind))
for make in (copy.copy, pickle.dumps, type(a), lambda probe: object.__new__(type(probe)),
             lambda probe: type("P", (type(probe),), {})):
    said(lambda: make(a))
"""
    ran = python("-c", source, env={"PROBESCOPE_STRICT": "1"})
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    wrong = "TypeError: argument {} of probe a has to be {}, not {}".format
    text = "a str, bytes or None"
    assert lines[:13] == [
        *["False"] * 2,
        wrong(0, text, "an instance of Evil"),
        *["False"] * 6,
        wrong(0, text, "an instance of bytearray"),
        wrong(1, "a float", "an int of more than 64 bits"),
        "TypeError: arguments of probe a have no names",
        "TypeError: probe a is called with one callable, which returns its arguments",
    ]
    assert [line.split(": ")[:2] for line in lines[13:23]] == [["Error", "no name"]] * 10
    assert [line.split(": ")[:2] for line in lines[23:27]] == [["Error", "no such type"]] * 4
    assert len(lines) == 32 and all(line.startswith("TypeError: ") for line in lines[27:]), lines[27:]


def test_threads_define_load_fire_and_unload_the_same_provider():
    """Without a GIL, the threads do so at the same time."""
    source = """
import threading
import probescope
shop = probescope.Provider("shop")
probes = [shop.probe("first", str)]
def work(number):
    begin.wait()
    for i in range(150):
        for what in (shop.load, lambda: probes.append(shop.probe(f"probe{number}_{i}", int)),
                     lambda: shop.path, shop.unload):
            try: what()
            except probescope.Error as error: assert "is loaded" in str(error)
        probes[-1].fire(i)
        probes[0].fire("text")
begin = threading.Barrier(4)
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert shop.unload() and shop.probe("last") and shop.load(), shop.error
print(shop.path.endswith(".so"), shop.unload(), shop.path)
"""
    ran = python("-c", source)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "True True None\n", "")


def test_an_idle_call_with_a_lambda_costs_at_most_twice_an_empty_function_with_it():
    """The functions run in turns in one process. Up to three attempts, because other programs may
    disturb one.
    """
    source = """
import time, probescope
from probescope._native import nothing
checkout = probescope.Provider("shop").probe("checkout", str, int)
def turn(function):
    start = time.perf_counter()
    for i in range(2000): function(lambda: ("a", i))
    return time.perf_counter() - start
turns = [(turn(checkout), turn(nothing)) for _ in range(200)]
print(sorted(one for one, _ in turns)[70] / sorted(other for _, other in turns)[70])
"""
    assert any(float(python("-c", source).stdout) <= 2 for _ in range(3))
