"""Programs that use every freedom of the interpreter: {name: (source, options)}.

The output of each program is the same in each run.
"""

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
strange = ["", "\\0", "a\\0b", "\\ud800", "x" * 10000, "\\U0001f600" * 300, "../../etc", "%s%n",
           "\\x1b[31m", "\\n"]
for name in strange:
    for changes in ({"co_name": name}, {"co_filename": name},
                    {"co_name": name, "co_filename": name, "co_firstlineno": 2**31 - 1}):
        code = f.__code__.replace(**changes)
        f.__code__ = code.replace(co_qualname=name)
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
for name in ["traceback", "logging", "probescope", "probescope._native", "threading", "os", "atexit",
             "opentelemetry", "warnings"]:
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
for _name, _options in (("development mode", ["-X", "dev"]), ("warnings are errors", ["-W", "error"]),
                        ("-O", ["-OO"]), ("isolated", ["-I"]), ("without site", ["-S"]),
                        ("bytes are compared", ["-bb"])):  # fmt: skip
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
        inner = ("def f():\\n    try:\\n        return {}['x']\\n"
                 "    except KeyError:\\n        return __name__")
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
    "exit by exception",
    "def f(): raise KeyError('x')\nclass C:\n    def __del__(self): f.__name__\nc = C()\nf()\n",
)
_program(
    "exit by sys.exit in depth", "import sys\ndef f(n): return f(n - 1) if n else sys.exit(n + 9)\nf(50)\n"
)
_program("exit by os._exit", "import os\nprint('x', flush=True)\ndef f(): os._exit(7)\nf()\n")
_program(
    "exit by a signal",
    "import os, signal\ndef f(): os.kill(os.getpid(), signal.SIGTERM)\nf()\nwhile True: pass\n",
)
_program(
    "exit by abort",
    "import os, resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\ndef f(): os.abort()\nf()\n",
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
    "frames that were cleared",
    """
import traceback
class Case:
    def fails(self, deep):
        def inner():
            return self, deep
        if deep:
            self.fails(deep - 1)
        raise KeyError(deep)
for _ in range(50):
    try:
        Case().fails(5)
    except KeyError as e:
        traceback.clear_frames(e.__traceback__)
        kept = e
del kept
print("done")
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
_program(
    "recursion to the limit, again and again",
    """
import sys
depths = []
def f(n):
    depths[-1] = n
    return f(n + 1)
def handled_where_it_is_deep(n):
    try:
        return handled_where_it_is_deep(n + 1)
    except RecursionError:
        return n > 10
def cleans_up(n):
    try:
        cleans_up(n + 1)
    finally:
        len(str(n))
def generates(n):
    yield from generates(n + 1)
class Deep:
    def __eq__(self, other): return Deep() == other
    def __repr__(self): return repr(Deep())
    def __hash__(self): return hash((Deep(),))
    def __getattr__(self, name): return getattr(Deep(), name)
def caught(call, *args):
    try:
        return call(*args)
    except RecursionError as e:
        return type(e).__name__
for limit in (200, 1000, 3000, 150):
    sys.setrecursionlimit(limit)
    depths.append(0)
    print(caught(f, 0), caught(handled_where_it_is_deep, 0), caught(cleans_up, 0), caught(list, generates(0)))
    print(caught(lambda: Deep() == 1), caught(repr, Deep()), caught(hash, Deep()), caught(lambda: Deep().x))
    print([caught(f, 0) for _ in range(20)] == ["RecursionError"] * 20)
def lowers(n):
    if n: return lowers(n - 1)
    try:
        sys.setrecursionlimit(20)
    except RecursionError:
        return "refused"
print(lowers(40), depths[0] < depths[2])
""",
)
_program(
    "the stack of C overflows",
    """
import resource, sys, threading
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.setrecursionlimit(10**9)
class Deep:
    def __getattr__(self, name):
        return getattr(self, name + "x") if len(name) < 5 else list(map(getattr, [self], ["x"]))
print("now", flush=True)
try:
    Deep().x
except RecursionError:
    print("it does not")
""",
)
_program(
    "memory that is never there",
    """
import sys
class Short(MemoryError): pass
def ask(n):
    try:
        return bytearray(sys.maxsize) if n % 2 else "x" * (sys.maxsize // 2)
    except MemoryError as e:
        return 1
def nested(n):
    try:
        try:
            raise MemoryError if n % 3 else Short(n)
        finally:
            if n: nested(n - 1)
    except MemoryError as e:
        return e
print(sum(ask(n) for n in range(500)))
kept = [nested(40) for _ in range(50)]
print(len(kept), len({type(e) for e in kept}))
""",
)
_program(
    "killed while threads run",
    """
import os, signal, threading, time
def f(n):
    while True:
        try: {}[n]
        except KeyError: n += 1
for n in range(3): threading.Thread(target=f, args=(n,), daemon=True).start()
time.sleep(0.2)
os.kill(os.getpid(), signal.SIGKILL)
""",
)
_program(
    "exec in the place of the process",
    """
import os, sys, threading
source = '''
import os, sys
def f(n):
    try: raise ValueError(n)
    except ValueError: return n
print(sum(f(n) for n in range(100)), flush=True)
n = int(sys.argv[1])
if n: os.execv(sys.executable, [sys.executable, "-c", os.environ["SOURCE"], str(n - 1)])
sys.exit(6)
'''
stop = threading.Event()
def turn():
    while not stop.is_set(): sum(range(10))
for _ in range(3): threading.Thread(target=turn, daemon=True).start()
os.environ["SOURCE"] = source
child = os.posix_spawn(sys.executable, [sys.executable, "-c", source, "1"], os.environ)
print(os.waitpid(child, 0)[1], flush=True)
os.execve(sys.executable, [sys.executable, "-c", source, "3"], os.environ)
""",
)
_program(
    "a storm of signals",
    """
import os, signal, threading
class Alarm(Exception): pass
seen = {"alarm": 0, "usr1": 0, "raised": 0, "caught": 0}
def on_alarm(number, frame):
    seen["alarm"] += 1
    if frame.f_code is work.__code__:
        seen["raised"] += 1
        raise Alarm
def on_usr1(number, frame):
    seen["usr1"] += 1
    if seen["usr1"] % 10 == 0: os.kill(os.getpid(), signal.SIGUSR1)
def work(n):
    try: return n and work(n - 1) or {}["x"]
    except KeyError: return 1
    finally: len("x")
signal.signal(signal.SIGALRM, on_alarm)
signal.signal(signal.SIGUSR1, on_usr1)
done = threading.Event()
main = threading.main_thread().ident
def shoots():
    while not done.is_set():
        signal.pthread_kill(main, signal.SIGUSR1)
        done.wait(0.001)
thread = threading.Thread(target=shoots)
thread.start()
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
while seen["caught"] < 300:
    try: work(20)
    except Alarm: seen["caught"] += 1
signal.setitimer(signal.ITIMER_REAL, 0)
done.set()
thread.join()
print(seen["raised"] >= seen["caught"] > seen["raised"] / 2, seen["usr1"] > 10)
""",
)
_program(
    "signals that others wait for",
    """
import os, select, signal, threading
reading, writing = os.pipe()
os.set_blocking(writing, False)
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGTERM})
got = []
for n in range(200):
    os.kill(os.getpid(), signal.SIGUSR2)
    got.append(signal.sigwait({signal.SIGUSR2}))
    os.kill(os.getpid(), signal.SIGUSR1)
    select.select([reading], [], [], 60)
    got.append(os.read(reading, 1)[0])
os.kill(os.getpid(), signal.SIGTERM)
print(len(got), set(got) == {signal.SIGUSR1, signal.SIGUSR2}, signal.SIGTERM in signal.sigpending())
""",
)
_program(
    "atexit within atexit, and threads that come late",
    """
import atexit, sys, threading
def told(what):
    try: raise KeyError(what)
    except KeyError as e: print(e.args[0])
def late():
    told("late")
    try:
        thread = threading.Thread(target=told, args=("thread",))
        thread.start()
        thread.join()
    except RuntimeError:
        print("thread")
def again():
    told("again")
    atexit.unregister(told)
    atexit.register(told, "registered in a handler")
    sys.exit(3)
atexit.register(told, "never")
atexit.register(late)
atexit.register(again)
class Last:
    def __del__(self): told("deleted")
last = Last()
sys.last = Last()
""",
)
_program(
    "weak references and finalizers that raise",
    """
import gc, sys, weakref
unraisable = []
sys.unraisablehook = lambda args: unraisable.append(args.exc_type.__name__)
class Error(Exception): pass
class Thing: pass
def gone(reference):
    try: {}[reference]
    except KeyError: raise Error("callback") from None
for n in range(200):
    thing, error = Thing(), Error(n)
    kept = [weakref.ref(thing, gone), weakref.ref(error, gone), weakref.finalize(thing, gone, n)]
    try: raise error
    except Error: thing.error = error
    thing.me = thing
    del thing, error
    gc.collect() if n % 50 == 0 else None
gc.collect()
print(len(unraisable), sorted(set(unraisable)))
""",
)
_program(
    "the dead that come back",
    """
import gc, sys
kept = []
class Error(Exception):
    def __del__(self):
        kept.append(self)
        try: raise KeyError
        except KeyError: pass
class Thing:
    __slots__ = ("error", "__weakref__")
    def __del__(self): kept.append(self)
def f(n):
    try: raise Error(n)
    except Error as e:
        thing = Thing()
        thing.error = e
for n in range(300): f(n)
gc.collect()
print(len(kept), sum(isinstance(one, Error) for one in kept))
for n in range(4):
    again, kept[:] = list(kept), []
    for one in again:
        if isinstance(one, Error):
            try: raise one
            except Error: pass
    again = one = None
    gc.collect()
    print(len(kept))
""",
)
_program(
    "code that is replaced while it runs",
    """
def a(n): return n + 1
def b(n):
    try: return {}[n]
    except KeyError: return n - 1
def swaps(n):
    code = swaps.__code__
    swaps.__code__ = (a if n % 2 else b).__code__
    try: raise ValueError(swaps(n))
    except ValueError as e: value = e.args[0]
    swaps.__code__ = code
    return value
def gen(n):
    while n:
        gen.__code__ = gen.__code__.replace(co_name="g%d" % n, co_firstlineno=n)
        yield n
        n -= 1
print(sum(swaps(n) for n in range(300)), sum(gen(300)))
total = 0
for n in range(2000):
    a.__code__ = a.__code__.replace(co_name="a%d" % (n % 7), co_filename="/made/%d.py" % n)
    total += a(n)
print(total)
""",
)
_program(
    "modules that are loaded again and again",
    """
import importlib, os, sys, tempfile
with tempfile.TemporaryDirectory() as directory:
    sys.path.insert(0, directory)
    sys.dont_write_bytecode = True
    total = 0
    for n in range(200):
        with open(os.path.join(directory, "changing.py"), "w") as file:
            file.write("class E(Exception): pass\\n" + "#\\n" * n)
            file.write("def f():\\n try: raise E\\n except E: return %d\\n" % n)
        if n == 0: import changing
        elif n % 3: importlib.reload(changing)
        else:
            del sys.modules["changing"]
            import changing
        total += changing.f()
        importlib.invalidate_caches()
    print(total)
""",
)
_program(
    "called by C, and raising into it",
    """
import ctypes, functools, sys
sys.unraisablehook = lambda args: None
libc = ctypes.CDLL(None)
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
calls = []
@kind
def compare(a, b):
    calls.append(1)
    if len(calls) % 5 == 0: raise ValueError
    return a[0] - b[0]
numbers = (ctypes.c_int * 500)(*range(500, 0, -1))
for _ in range(20):
    libc.qsort(numbers, 500, ctypes.sizeof(ctypes.c_int), compare)
print(len(calls) > 1000)
def key(n):
    if n == 999: raise KeyError(n)
    return -n
for call in (lambda: sorted(range(1000), key=key), lambda: list(map(key, range(1000))),
             lambda: max(range(1000), key=key), lambda: functools.reduce(lambda a, b: key(b), range(1000)),
             lambda: dict(map(key, [999])), lambda: sum(map(key, range(1000)))):
    try: call()
    except KeyError as e: print(e)
handed = ctypes.py_object(numbers)
print(ctypes.pythonapi.PyObject_Size(handed))
""",
)
for _name, _interval in (("as often as can be", "1e-6"), ("hardly ever", "100.0")):
    _program(f"threads switch {_name}", f"""
import sys, threading
sys.setswitchinterval({_interval})
def f(n):
    try: return n and f(n - 1) or [][n]
    except IndexError: return 1
    finally: threading.local().x = n
def g():
    for n in range(20): yield f(n)
totals = []
def work():
    totals.append(sum(sum(g()) for _ in range(20)))
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(totals)
""")  # fmt: skip
_program(
    "chains of generators",
    """
import sys
def chain(n):
    if n: yield from chain(n - 1)
    else:
        try: yield 1
        except KeyError: yield 2
        yield 3
sys.setrecursionlimit(10000)
for depth in (10, 500, 2000):
    gen = chain(depth)
    print(next(gen), gen.throw(KeyError("in")), next(gen), next(gen, "end"))
    left = chain(depth)
    next(left)
    del left
def wrapped(inner):
    for value in inner: yield value
gen = iter(range(5))
for _ in range(1500): gen = wrapped(gen)
print(list(gen))
async def deep(n): return await deep(n - 1) if n else 1
coroutine = deep(1500)
try: coroutine.send(None)
except StopIteration as e: print(e.value)
gens = []
def reenters():
    yield 1
    try: next(gens[0])
    except ValueError as e: yield str(e)
gens.append(reenters())
print(list(gens[0]))
""",
)
_program(
    "a storm of cancellations",
    """
import asyncio, random
random.seed(7)
ends = {"cancelled": 0, "done": 0, "timeout": 0, "error": 0}
async def inner(n):
    try:
        await asyncio.sleep(0)
        if n % 7 == 0: raise KeyError(n)
        await asyncio.sleep(0 if n % 3 else 3600)
    finally:
        await asyncio.sleep(0)
    return n
async def outer(n):
    try: return await asyncio.shield(inner(n)) if n % 5 == 0 else await inner(n)
    except KeyError: raise
    except asyncio.CancelledError:
        await asyncio.sleep(0)
        raise
async def agen():
    try:
        for n in range(100): yield n
    finally: await asyncio.sleep(0)
async def main():
    tasks = [asyncio.ensure_future(outer(n)) for n in range(600)]
    for _ in range(4):
        await asyncio.sleep(0)
        for task in random.sample(tasks, 100): task.cancel()
    # Each task gets as far as it can by itself. Which tasks are cancelled below must not depend on
    # how far they get in 10 ms.
    for _ in range(20): await asyncio.sleep(0)
    try: await asyncio.wait_for(asyncio.sleep(3600), 0.01)
    except asyncio.TimeoutError: ends["timeout"] += 1
    for task in tasks: task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        ends["cancelled" if isinstance(result, asyncio.CancelledError)
             else "error" if isinstance(result, Exception) else "done"] += 1
    for _ in range(20):
        async for n in agen():
            if n == 3: break
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task(): task.cancel()
    await asyncio.sleep(0.01)
loop = asyncio.new_event_loop()
loop.set_exception_handler(lambda *args: None)
loop.run_until_complete(main())
loop.run_until_complete(loop.shutdown_asyncgens())
print(ends, sum(ends.values()))
""",
)
_program(
    "ten thousand threads",
    """
import _thread, threading
total, lock = [0], threading.Lock()
def f(n):
    try: raise ValueError(n)
    except ValueError:
        with lock: total[0] += 1
def few(count):
    threads = [threading.Thread(target=f, args=(n,)) for n in range(count)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
for _ in range(100): few(50)
for n in range(5000):
    left = _thread.allocate_lock()
    left.acquire()
    _thread.start_new_thread(lambda: (f(n), left.release()), ())
    left.acquire()
print(total)
""",
)
_program(
    "classes of exceptions by the thousand",
    """
import gc
class Meta(type):
    def __subclasses__(cls): raise SystemExit("asked for subclasses")
    def mro(cls): return type.mro(cls)
class Base(Exception, metaclass=Meta): pass
class Slots(Exception): __slots__ = ("a",)
class Both(OSError, ValueError): pass
class Own(Base):
    def __new__(cls, *args): return super().__new__(cls, *args)
    def __init_subclass__(cls, **kwargs): len(kwargs)
class Becomes(Exception): pass
def raised(kind, *args):
    try: raise kind(*args)
    except kind as e:
        e.cause, e.__cause__ = e, e.__context__
        if type(e) is Becomes: e.__class__ = Base
        return type(e).__name__
names = set()
for n in range(3000):
    kind = type("E%d" % n, ((Base, Exception, Slots, Both, Own)[n % 5],), {"__slots__": ()} if n % 2 else {})
    names.add(raised(kind, n) if kind.__bases__ != (Slots,) else kind.__name__)
    if n % 500 == 0: gc.collect()
del kind
gc.collect()
print(len(names), raised(Becomes), raised(Both, 2, "no"),
      raised(UnicodeDecodeError, "a", b"b", 0, 1, "c"), raised(StopIteration, 4))
print(len(Exception.__subclasses__()) > 10)
""",
)
_program(
    "exceptions that are shared, and tracebacks that are changed",
    """
import sys, threading
shared = ValueError("shared")
def f(n):
    for _ in range(300):
        try: raise shared
        except ValueError as e:
            if n == 0: e.__traceback__ = None
            if n == 1: e.with_traceback(e.__traceback__ and e.__traceback__.tb_next)
            if n == 2: e.__context__ = e.__cause__ = None
threads = [threading.Thread(target=f, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
def deep(n):
    if n: deep(n - 1)
    raise KeyError(n)
try: deep(50)
except KeyError as e:
    tb = e.__traceback__
    while tb.tb_next.tb_next: tb = tb.tb_next
    tb.tb_next = None
    try: tb.tb_next = tb
    except ValueError as loop: print(loop)
    print(e.__traceback__.tb_frame.f_code.co_name)
def grouped(n):
    try:
        raise ExceptionGroup("g", [ValueError(n), ExceptionGroup("h", [KeyError(n), OSError(n)])])
    except* KeyError as e: count[0] += len(e.exceptions)
    except* (ValueError, OSError) as e: e.add_note("noted")
count = [0]
for n in range(200): grouped(n)
assert count == [200]
print(shared.args)
""",
)
_program(
    "hooks of the application that raise and come and go",
    """
import sys, threading
def f(n):
    x = n
    try: return {}[x]
    except KeyError: return 1
def raises(frame, event, arg):
    if event == "return" and frame.f_code.co_name == "f": raise OSError("from the hook")
    return raises
ends = []
for setter in (sys.setprofile, sys.settrace):
    for n in range(50):
        setter(raises)
        try: ends.append(f(n))
        except OSError as e: ends.append("raised")
        setter(None)
print(ends.count("raised"), ends.count(1))
def jump(frame, event, arg):
    code = frame.f_code
    if code.co_name == "jumps" and event == "line" and frame.f_lineno == code.co_firstlineno + 2:
        frame.f_lineno += 1
    return jump
def jumps():
    a = 1
    a = 2
    return a
sys.settrace(jump)
print(jumps())
sys.settrace(None)
def toggles():
    for n in range(300):
        sys.setprofile(lambda *args: None)
        f(n)
        sys.settrace(lambda *args: None)
        sys.setprofile(None)
        sys.settrace(None)
threads = [threading.Thread(target=toggles) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sys.getprofile(), sys.gettrace())
""",
)
_program(
    "everything that the collector knows is looked at",
    """
import gc, sys, threading
def f(n):
    try: raise ValueError(n)
    except ValueError: return [n]
kept = [f(n) for n in range(100)]
strange = 0
for one in gc.get_objects():
    strange += type(one).__module__ == "probescope._native"
    gc.is_tracked(one), sys.getrefcount(one), sys.getsizeof(one, 0)
    len(gc.get_referents(one))
print(strange, len(gc.get_referrers(kept)) > 0, len(sys._current_frames()), threading.active_count())
gc.callbacks.clear()
f(1)
gc.collect()
print(sum(1 for one in gc.garbage))
""",
)
_program(
    "output that is closed or raises",
    """
import sys, os
class Broken:
    def write(self, text): raise OSError("write")
    def flush(self): raise ValueError("flush")
out = sys.stdout
sys.stdout = sys.stderr = Broken()
def f():
    try: print("lost")
    except OSError: return 1
out.write("%d\\n" % sum(f() for _ in range(10)))
out.flush()
sys.stdout = out
os.close(2)
sys.stderr = None
class Late:
    def __del__(self): raise KeyError("unheard")
Late()
1 / 0
""",
)
_program(
    "requests that come and go in contexts of all sizes",
    """
import contextvars, sys, threading
from probescope import _native
sys.setswitchinterval(1e-5)
others = [contextvars.ContextVar(f"other {n}") for n in range(60)]
def work(n): return sum(range(n % 300))
def request(n):
    own = _native.Request("GET", f"/{n % 7}", None)
    outer = _native.enter_request(own)
    for other in others[:n % 60]: other.set(n)
    done = work(n)
    if n % 3: own.done(200, None)
    if n % 5: _native.enter_request(outer)
    return done
def serve():
    # A context may inherit the request of another, and that request may be over.
    total, last = 0, contextvars.copy_context()
    for n in range(1500):
        context = last.copy() if n % 2 else contextvars.Context()
        total += context.run(request, n)
        last = context
        if n % 100 == 0: last = contextvars.Context()
    totals.append(total)
totals = []
threads = [threading.Thread(target=serve) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(totals)
""",
)
