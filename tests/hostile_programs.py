"""Programs that do to an interpreter what it allows: {name: (source, options)}. Each writes the same each time."""

from __future__ import annotations

from typing import Dict, List, Tuple

HOSTILE_PROGRAMS: Dict[str, Tuple[str, List[str]]] = {}


def _program(name: str, source: str, *options: str) -> None:
    HOSTILE_PROGRAMS[name] = (source, list(options))


_program(
    "code objects with strange names",
    """
def f(n):
    try:
        return n / 0
    except ZeroDivisionError as e:
        return type(e).__name__
strange = ["", "\\0", "a\\0b", "\\ud800", "x" * 10000, "\\U0001f600" * 300, "../../etc", "%s%n", "\\x1b[31m", "\\n"]
for name in strange:
    for changes in ({"co_name": name}, {"co_filename": name}, {"co_name": name, "co_filename": name, "co_firstlineno": 2**31 - 1}):
        code = f.__code__.replace(**changes)
        if hasattr(code, "co_qualname"):
            code = code.replace(co_qualname=name)
        f.__code__ = code
        print(f(1))
""",
)
_program(
    "equal code objects by the thousand",
    """
total = 0
for n in range(3000):
    space = {}
    exec(compile("def f():\\n return 1", "<made>", "exec"), space)
    total += space["f"]()
    del space
print(total)
""",
)
_program(
    "code whose file is told afterwards",
    """
for n in range(500):
    code = compile("def f():\\n raise ValueError(1)\\ntry: f()\\nexcept ValueError: pass", "x" * n, "exec")
    exec(code, {"__name__": ["a list"], "__builtins__": __builtins__})
    exec(code, {})
print("done")
""",
)
_program(
    "metaclasses",
    """
class Meta(type):
    def __getattribute__(cls, name):
        print("asked for", name)
        return type.__getattribute__(cls, name)
    @property
    def __module__(cls):
        raise SystemExit("asked for the module")
    def __instancecheck__(cls, other):
        print("instance?")
        return type.__instancecheck__(cls, other)
    def __subclasscheck__(cls, other):
        print("subclass?")
        return type.__subclasscheck__(cls, other)
class Strange(Exception, metaclass=Meta):
    __module__ = 42
    def __getattribute__(self, name):
        print("read", name)
        return super().__getattribute__(name)
    def __eq__(self, other): raise SystemExit("compared")
    def __hash__(self): raise SystemExit("hashed")
    def __repr__(self): raise SystemExit("shown")
    def __del__(self): print("gone")
for n in range(3):
    try:
        raise Strange(n)
    except Exception:
        print("caught")
Strange.__qualname__ = "\\ud800" * 100
try:
    raise Strange
except Exception:
    print("caught")
""",
)
_program(
    "__module__ is a property of the class",
    """
class Odd(Exception):
    @property
    def __module__(self): raise SystemExit("asked")
class Odder(Odd):
    __module__ = property(lambda self: 1 / 0)
    __qualname__ = "Odder\\0"
for kind in (Odd, Odder):
    try:
        raise kind("x")
    except kind as e:
        print(len(e.args))
""",
)
_program(
    "globals that are not plain",
    """
class Space(dict):
    def __getitem__(self, key):
        print("looked up", key)
        return dict.__getitem__(self, key)
    def __missing__(self, key):
        raise SystemExit(key)
    def get(self, *args): raise SystemExit(args)
exec("def f():\\n    return 1\\nx = f()", Space(__name__="odd", __builtins__={}), Space())
class Key(str):
    def __eq__(self, other): raise RuntimeError("compared")
    __hash__ = str.__hash__
space = {Key("__name__"): 1}
try:
    exec("(lambda: 1)()\\nprint('ran')", space)
except RuntimeError as e:
    print(e)
""",
)
_program(
    "modules replaced in sys.modules",
    """
import sys, types
class Module(types.ModuleType):
    def __getattr__(self, name):
        raise SystemExit("asked for " + name)
for name in ["traceback", "logging", "probescope", "probescope._native", "threading", "os", "atexit", "opentelemetry", "warnings"]:
    sys.modules[name] = Module(name)
def f():
    try:
        {}["x"]
    except KeyError:
        return 1
print(sum(f() for _ in range(100)))
sys.modules["__main__"] = None
print(sum(f() for _ in range(100)))
""",
)
_program(
    "sys.modules is emptied",
    """
import sys, time
def f(n): return n and f(n - 1)
def g():
    for name in list(sys.modules):
        if name not in ("sys", "builtins", "__main__"):
            del sys.modules[name]
    print(f(10))
g()
""",
)
_program(
    "sys.monitoring tools of others",
    """
import sys
def f(n): return n and f(n - 1)
if hasattr(sys, "monitoring"):
    m = sys.monitoring
    seen = []
    taken = [i for i in range(6) if m.get_tool(i) is None]
    tool = taken[0]
    m.use_tool_id(tool, "other")
    def started(code, offset):
        return seen.append(code.co_name) if code.co_name == "f" else m.DISABLE
    m.register_callback(tool, m.events.PY_START, started)
    m.set_events(tool, m.events.PY_START)
    f(10)
    m.restart_events()
    f(10)
    m.set_events(tool, 0)
    m.free_tool_id(tool)
    print(seen)
else:
    print(["f"] * 22)
""",
)
_program(
    "sys.setprofile and sys.settrace have owners",
    """
import sys, threading
events = []
def hook(frame, event, arg):
    if frame.f_code.co_name in ("f", "g"):
        events.append((event, frame.f_code.co_name))
    return hook
def g(): yield 1
def f():
    try:
        return list(g()) and {}["x"]
    except KeyError:
        return 2
for setter, getter in ((sys.setprofile, sys.getprofile), (sys.settrace, sys.gettrace)):
    setter(hook)
    f()
    print(getter() is hook)
    setter(None)
    print(getter(), events)
    events.clear()
threading.setprofile(hook)
thread = threading.Thread(target=f)
thread.start()
thread.join()
print(events)
""",
)
_program(
    "cProfile",
    """
import cProfile, pstats, io
def f(n): return n and f(n - 1)
profile = cProfile.Profile()
profile.runcall(f, 50)
stats = pstats.Stats(profile, stream=io.StringIO())
print([(key[2], value[0]) for key, value in stats.stats.items() if key[2] == "f"])
""",
)
_program(
    "threads without a Python state",
    """
import ctypes, threading
libc = ctypes.CDLL(None)
kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
counts = []
def deep(n):
    try:
        return n and deep(n - 1) or {}["x"]
    except KeyError:
        return 1
@kind
def work(argument):
    counts.append(deep(5))
    return 0
for _ in range(50):
    threads = []
    for _ in range(4):
        thread = ctypes.c_ulong()
        libc.pthread_create(ctypes.byref(thread), None, work, None)
        threads.append(thread)
    for thread in threads:
        libc.pthread_join(thread, None)
print(len(counts), sum(counts))
""",
)
_program(
    "deep recursion",
    """
import sys, threading
def f(n):
    return n and 1 + f(n - 1)
def g():
    return g() + 1
class Odd:
    def __getattr__(self, name): return getattr(self, name + "x")
sys.setrecursionlimit(20000)
threading.stack_size(256 << 20)
def run():
    print(f(15000))
    for _ in range(3):
        for call in (g, lambda: Odd().x):
            try:
                call()
            except RecursionError as e:
                print("too deep", e.__traceback__ is not None)
thread = threading.Thread(target=run)
thread.start()
thread.join()
""",
)
_program(
    "long chains of exceptions",
    """
last = None
for n in range(30000):
    try:
        raise ValueError(n) from last
    except ValueError as e:
        last = e
print(last.args)
del last, e if False else last
class Linked(Exception):
    def __del__(self):
        try:
            raise KeyError("in a finalizer")
        except KeyError:
            pass
chain = None
for n in range(5000):
    try:
        try:
            raise Linked
        except Linked as inner:
            inner.__context__ = chain
            chain = inner
            inner = None
    finally:
        pass
chain = None
print("freed")
""",
)
_program(
    "gc.freeze, gc.disable and gc callbacks",
    """
import gc
gc.disable()
gc.freeze()
class Cycle:
    def __init__(self): self.me = self
    def __del__(self):
        try: {}["x"]
        except KeyError: pass
gc.callbacks.append(lambda phase, info: gc.isenabled())
for n in range(2000):
    Cycle()
    if n % 500 == 0: gc.collect()
gc.unfreeze()
gc.enable()
gc.set_threshold(1, 1, 1)
for n in range(200):
    Cycle()
gc.set_threshold(700)
gc.set_debug(0)
print(gc.collect() >= 0)
""",
)
_program(
    "tracemalloc",
    """
import tracemalloc
tracemalloc.start(5)
def f(): return [object() for _ in range(1000)]
kept = f()
shot = tracemalloc.take_snapshot()
print(any(stat.count >= 1000 for stat in shot.statistics("lineno")))
tracemalloc.stop()
print(tracemalloc.is_tracing())
""",
)
_program(
    "faulthandler",
    """
import faulthandler, signal, sys, os
faulthandler.enable()
faulthandler.dump_traceback_later(60)
faulthandler.cancel_dump_traceback_later()
def f():
    faulthandler.dump_traceback(sys.stderr, all_threads=False)
f()
""",
)
for _name, _options in (("development mode", ["-X", "dev"]), ("warnings are errors", ["-W", "error"]), ("-O", ["-OO"]),
                        ("isolated", ["-I"]), ("without site", ["-S"]), ("bytes are compared", ["-bb"])):  # fmt: skip
    _program(_name, """
import asyncio, os, subprocess, sys, threading
class Broken(Exception): pass
def fails(n):
    try:
        if n: fails(n - 1)
        else: raise Broken(n)
    finally:
        os.getpid()
async def task(n):
    try:
        await asyncio.sleep(0)
        fails(n)
    except Broken:
        return n
async def main():
    asyncio.get_running_loop().slow_callback_duration = 100
    return await asyncio.gather(*(task(n) for n in range(20)))
print(asyncio.run(main()))
threads = [threading.Thread(target=lambda: [task for task in range(100)]) for _ in range(5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(subprocess.run([sys.executable, "-c", "print(1)"], stdout=subprocess.PIPE).stdout)
if sys.version_info < (3, 12) or len(threads) == 5:
    pid = os.fork()
    if not pid: os._exit(3)
    print(os.waitpid(pid, 0)[1])
""", *_options)  # fmt: skip
_program(
    "exec, eval and compile",
    """
space = {}
for n in range(300):
    exec(f"def f{n}(x):\\n    return x + {n}", space)
print(sum(space[f"f{n}"](1) for n in range(300)), eval("[(lambda: i)() for i in range(3)]"))
""",
)
_program(
    "a zipapp",
    """
import os, runpy, sys, tempfile, zipfile
with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, "app.pyz")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__main__.py", "import inner\\nprint(inner.f())")
        inner = "def f():\\n    try:\\n        return {}['x']\\n    except KeyError:\\n        return __name__"
        archive.writestr("inner.py", inner)
    runpy.run_path(path, run_name="__main__")
    print(os.system(f"{sys.executable} {path}"))
""",
)
_program(
    "atexit handlers",
    """
import atexit, sys
def f(n):
    try: raise ValueError(n)
    except ValueError: print("handler", n)
    if n == 2: raise KeyError("in a handler")
    if n == 3: sys.exit(4)
for n in range(5): atexit.register(f, n)
atexit.register(lambda: atexit.register(f, 7))
print("done")
""",
)
_program(
    "atexit handlers are thrown away",
    """
import atexit
class Last(Exception):
    def __del__(self): print("gone", self.args)
def f():
    try: raise Last("handled")
    except Last as error: return error
kept = [f(), Last("never raised")]
atexit.register(print, "not called")
atexit._clear()
print("done")
""",
)
_program(
    "exit by exception", "def f(): raise KeyError('x')\nclass C:\n    def __del__(self): f.__name__\nc = C()\nf()\n"
)
_program("exit by sys.exit in depth", "import sys\ndef f(n): return f(n - 1) if n else sys.exit(n + 9)\nf(50)\n")
_program("exit by os._exit", "import os\nprint('x', flush=True)\ndef f(): os._exit(7)\nf()\n")
_program(
    "exit by a signal", "import os, signal\ndef f(): os.kill(os.getpid(), signal.SIGTERM)\nf()\nwhile True: pass\n"
)
_program(
    "exit by abort", "import os, resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\ndef f(): os.abort()\nf()\n"
)
_program(
    "exit from a thread",
    """
import os, threading
def f():
    try: raise ValueError
    except ValueError: os._exit(5)
thread = threading.Thread(target=f)
thread.start()
thread.join()
""",
)
_program(
    "exit with daemon threads that run",
    """
import threading, time
started = threading.Barrier(5)
def f(n):
    started.wait()
    while True:
        try: {}[n]
        except KeyError: pass
for n in range(4): threading.Thread(target=f, args=(n,), daemon=True).start()
started.wait()
print("bye")
""",
)
_program(
    "a thread that outlives the main one",
    """
import threading, time
def f():
    threading.main_thread().join()
    for n in range(1000):
        try: raise ValueError
        except ValueError: pass
    print("after")
threading.Thread(target=f).start()
""",
)
_program(
    "subinterpreters",
    """
import sys
names = ("_interpreters", "_xxsubinterpreters")
module = None
for name in names:
    try:
        module = __import__(name)
        break
    except ImportError:
        pass
source = '''
def f(n):
    try: return n and f(n - 1) or {}["x"]
    except KeyError: return 1
assert f(5) == 1
'''
for n in range(5):
    number = module.create()
    failed = module.run_string(number, source)
    assert failed is None, failed
    if n % 2: module.destroy(number)
def f(): return 1
print(f())
""",
)
_program(
    "generators and coroutines left open",
    """
import asyncio, gc
def g():
    try:
        while True: yield 1
    finally:
        try: raise ValueError
        except ValueError: print("closed")
gens = [g() for _ in range(3)]
for gen in gens: next(gen)
del gens, gen
async def c():
    await asyncio.sleep(10)
async def main():
    task = asyncio.ensure_future(c())
    await asyncio.sleep(0)
    task.cancel()
    try: await task
    except asyncio.CancelledError: print("cancelled")
asyncio.run(main())
h = g()
next(h)
try: h.throw(KeyError("in"))
except KeyError as e: print(e)
""",
)
_program(
    "unraisable errors",
    """
class C:
    def __del__(self): raise ValueError("in __del__")
def f():
    C()
f()
import threading
thread = threading.Thread(target=lambda: 1 / 0, name="t")
threading.excepthook = lambda args: print(args.exc_type.__name__)
thread.start()
thread.join()
import sys
sys.excepthook = lambda *args: print("hook", args[0].__name__)
raise OSError("last")
""",
)
_program(
    "tracebacks",
    """
import logging, sys, traceback
def a(n): return a(n - 1) if n else {}["x"]
try: a(3)
except KeyError as e:
    print(traceback.format_exc())
    print("".join(traceback.TracebackException.from_exception(e).format()))
    logging.exception("logged")
    print(len(traceback.extract_tb(e.__traceback__)), len(traceback.format_stack()) > 0)
a(2)
""",
)
_program(
    "memory is short",
    """
import resource, sys
def eat():
    kept = []
    try:
        while True: kept.append(bytearray(1 << 26))
    except MemoryError:
        return "short"
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
print([eat() for _ in range(3)])
""",
)
_program(
    "no file descriptors are left",
    """
import resource, os
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
kept = []
def f():
    try:
        while True: kept.append(os.open("/", os.O_RDONLY))
    except OSError as e:
        return e.errno
print([f() for _ in range(3)])
""",
)
_program(
    "no threads can be made",
    """
import os, resource
if os.getuid() == 0: os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
def f():
    try: os.fork()
    except OSError as e: return e.errno
print(f(), f())
""",
)
