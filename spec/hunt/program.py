"""A program that does at random what CPython can do, for `rake hunt`, which raises and lowers
probes meanwhile.

    python spec/hunt/program.py SEED SECONDS [WITHOUT,...]

It is right when it ends by itself and says "done". Each method of Doings without an underscore is
one thing to do; the seed decides what is done in which order, in each thread by itself. WITHOUT
leaves some out: what CPython crashes in by itself is no finding.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import contextvars
import ctypes
import functools
import gc
import importlib
import os
import random
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
import tracemalloc
import types
import weakref

try:
    import greenlet
except ImportError:
    greenlet = None
interpreters = None
for name in ("_interpreters", "_xxsubinterpreters"):
    with contextlib.suppress(ImportError):
        interpreters = interpreters or importlib.import_module(name)

MAIN = os.getpid()
# What hangs or crashes CPython 3.11 and 3.12 by itself beside subinterpreters: threads;
# tracemalloc, which takes the GIL in Py_NewInterpreter().
NOT_BESIDE_SUBINTERPRETERS = [
    "starts_threads", "interrupts_threads", "waits", "switches_often", "traces_memory"
]
# What a child does that was forked beside threads. The rest waits for ever where one of them had a
# lock as it was forked: those of imports, files, tracemalloc, the dynamic linker.
IN_A_CHILD = [
    "calls_from_c",
    "calls_in_a_loop",
    "changes_code",
    "collects",
    "executes",
    "finalizes",
    "groups_exceptions",
    "handles_by_itself",
    "leaves_a_hook_on",
    "leaves_coroutines",
    "leaves_generators",
    "leaves_loops",
    "makes_classes",
    "monitors",
    "raises_while_leaving",
    "recurses_to_the_limit",
    "reinstalls",
    "runs_greenlets",
    "traces_by_itself",
    "walks_the_heap",
]
# What a process does that a child becomes by exec: the library is loaded again, and probes may be
# raised already.
ANOTHER = """
import time
def f(n):
    try: return f(n - 1) if n else {}[n]
    except KeyError: return n
deadline = time.monotonic() + 0.2
while time.monotonic() < deadline: f(5)
"""
qsort = ctypes.CDLL(None).qsort
monitoring = getattr(sys, "monitoring", None)
variable = contextvars.ContextVar("variable", default=0)


IMPORT = "try:\n    import probescope\nexcept ImportError:\n    pass\n"


class Declined(Exception):
    pass


class Loud(Declined):
    def __str__(self):
        raise Declined("in __str__")

    def __del__(self):
        len(self.args)


class Interrupt(BaseException):
    """From outside."""


class Meta(type):
    def __getattr__(cls, name):
        raise Declined(name)


class Base:
    slot = 1

    def leaf(self, number=1):
        return number

    def call(self, function, *arguments, **named):
        return function(*arguments, **named)

    @property
    def whole(self):
        return self.leaf(2)

    @staticmethod
    def still(number):
        return number

    @classmethod
    def made(cls):
        return cls()

    def __getattr__(self, name):
        if name.startswith("ghost"):
            return lambda *_: name
        raise AttributeError(name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return self.leaf(0) == 1

    def __len__(self):
        return 3

    def __iter__(self):
        yield from (self.leaf(n) for n in range(3))


class Child(Base):
    def leaf(self, number=1):
        return super().leaf(number) + 1


def numbers(count):
    for number in range(count):
        try:
            yield number
        finally:
            Base.still(number)


def delegating(count):
    got = yield from numbers(count)
    return got


async def awaits(depth):
    if depth:
        await asyncio.sleep(0)
        return await awaits(depth - 1)
    return variable.get()


async def produces(count):
    for number in range(count):
        await asyncio.sleep(0)
        yield number


class Doings:
    def __init__(self, dice, deadline, without, depth=0):
        self._dice, self._deadline, self._without, self._depth = dice, deadline, without, depth
        self._names = [name for name in dir(type(self)) if not name.startswith("_") and name not in without]
        self._object, self._kept, self._steps = Child(), [], 0

    def _run(self):
        while time.monotonic() < self._deadline:
            self._steps += 1
            name = self._dice.choice(self._names)
            if os.environ.get("HUNT_SHOW"):
                sys.stderr.write(f"{os.getpid()} {name}\n")
            try:
                getattr(self, name)()
            except (Exception, Interrupt):
                self._object.leaf(1)
        return self

    def _step(self):
        """Another thing inside the one that is being done, but not for ever."""
        if self._depth > 5 or time.monotonic() > self._deadline:
            return self._object.leaf(1)
        self._depth += 1
        try:
            return getattr(self, self._dice.choice(self._names))()
        finally:
            self._depth -= 1

    def _rare(self, one_in):
        return self._dice.randrange(one_in) == 0

    def _thread(self, work, *arguments):
        mine = Doings(random.Random(self._dice.random()), self._deadline, self._without, self._depth + 3)

        def run():
            with contextlib.suppress(Exception, Interrupt):
                work(mine, *arguments)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _first(self):
        return os.getpid() == MAIN and threading.current_thread() is threading.main_thread()

    # Calls

    def calls_in_a_loop(self):
        one = self._object
        for number in range(300):
            one.leaf(number)
            one.leaf(number=number)
            one.still(number)
            one.whole
            one.ghost_call(number)
            one.call(one.leaf, number)
            one.call(functools.partial(one.leaf, number))
            functools.reduce(lambda a, b: a + b, one)

    def calls_from_c(self):
        sorted(range(20), key=lambda n: self._object.leaf(-n))
        list(map(self._object.leaf, range(10)))
        max(numbers(10), key=self._object.leaf)
        compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
        array = (ctypes.c_int * 8)(*self._dice.sample(range(100), 8))
        qsort(array, 8, 4, compare(lambda a, b: self._object.leaf(a[0]) - self._object.leaf(b[0])))
        with Child() as child:
            len(child), list(child), bool(child)

    def recurses_to_the_limit(self):
        if not self._rare(6):
            return

        def forever(number):
            return forever(number + 1) + 1

        with contextlib.suppress(RecursionError):
            forever(0)

    def leaves_loops(self):
        for number in numbers(10):
            if number == self._dice.randrange(10):
                break
        list(delegating(5))

    # Generators and tasks

    def leaves_generators(self):
        one = delegating(10)
        next(one)
        choice = self._dice.randrange(5)
        if choice == 0:
            one.close()
        elif choice == 1:
            with contextlib.suppress(Declined):
                one.throw(Declined("thrown"))
        elif choice == 2:
            self._kept.append(one)
        elif choice == 3:
            clears = self._rare(2) and not one.gi_running and sys.version_info < (3, 13)
            one.gi_frame.clear() if clears else one.close()
        del one
        if self._rare(4):
            self._kept.clear()

    def runs_tasks(self):
        async def main():
            tasks = [asyncio.ensure_future(awaits(self._dice.randrange(4))) for _ in range(4)]
            tasks[0].cancel()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.sleep(1), 0.001)
            async for number in produces(3):
                if number:
                    break
            variable.set(variable.get() + 1)
            return await asyncio.gather(*tasks, return_exceptions=True)

        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(main())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def leaves_coroutines(self):
        one = awaits(3)
        with contextlib.suppress(RuntimeError):
            one.send(None) if self._rare(2) else one.close()
        one.close()
        left = produces(3)
        with contextlib.suppress(StopIteration, RuntimeError):
            left.asend(None).send(None)
        contextvars.copy_context().run(variable.set, 2)

    def runs_greenlets(self):
        if greenlet is None:
            return
        main = greenlet.getcurrent()

        def body(count):
            for number in range(count):
                self._object.leaf(number)
                main.switch(number)
            raise Declined("out of a greenlet")

        one = greenlet.greenlet(body, main)
        with contextlib.suppress(Declined):
            one.switch(3)
            for _ in range(self._dice.randrange(5)):
                one.switch()
        other = greenlet.greenlet(lambda: self._object.call(main.switch))
        other.switch()
        self._kept.append(other) if self._rare(2) else None

    # Exceptions

    def handles_by_itself(self):
        def fails(depth):
            if depth:
                return fails(depth - 1)
            raise self._dice.choice([Declined, Loud, ValueError, KeyError])("no")

        for number in range(20):
            try:
                fails(number % 5)
            except Exception as error:
                tb = error.__traceback__
                choice = number % 8
                if choice == 0:
                    traceback.format_exc()
                elif choice == 1:
                    error.__traceback__ = tb.tb_next
                elif choice == 2:
                    error.with_traceback(types.TracebackType(None, tb.tb_frame, tb.tb_lasti, 1))
                elif choice == 3:
                    self._kept.append(error)
                elif choice == 4:
                    with contextlib.suppress(Declined):
                        raise Declined("effect") from error
                elif choice == 5:
                    traceback.clear_frames(tb)
                elif choice == 6:
                    error.__traceback__ = None
                    with contextlib.suppress(Exception):
                        raise error
                else:
                    traceback.extract_tb(tb), traceback.format_list(traceback.extract_stack(limit=3))
        del self._kept[:-10]

    def raises_while_leaving(self):
        try:
            try:
                raise Declined("first")
            finally:
                with contextlib.suppress(Exception):
                    raise Loud("second")
        except Declined:
            return self._step()

    def groups_exceptions(self):
        try:
            raise ExceptionGroup(  # noqa: F821
                "several",
                [Declined(1), ValueError(2), ExceptionGroup("inner", [Loud(3)])],  # noqa: F821
            )
        except Exception as group:
            group.split(ValueError), group.derive([Declined(4)])
        exec(
            "try:\n raise ExceptionGroup('x', [KeyError(1), OSError(2)])\n"
            "except* KeyError:\n pass\nexcept* OSError:\n pass\n",
            {},
        )

    # Definitions

    def executes(self):
        number = self._dice.randrange(100)
        space = {"leaf": self._object.leaf, "__name__": f"made{number}"}
        source = (
            f"def made(n):\n{chr(10) * number}"
            "    return leaf(n) if n else [made(m) for m in (1, 2)]\nmade(0)\n"
        )
        exec(compile(source, f"made{number}.py", "exec"), space)
        eval("made(0)", space)
        exec(compile(ast.parse("try:\n  made(None) / 0\nexcept TypeError:\n  pass"), "<ast>", "exec"), space)

    def changes_code(self):
        def one(number=1):
            return self._object.leaf(number)

        def other(number=2):
            return [self][0]._object.leaf(number)

        one()
        one.__code__ = other.__code__
        one()
        one.__code__ = one.__code__.replace(co_name="renamed", co_firstlineno=1 + self._dice.randrange(1000))
        one()
        function = types.FunctionType(one.__code__, {}, "typed", (3,), one.__closure__)
        function(), function.__code__.co_consts

    def makes_classes(self):
        for number in range(5):
            body = {"leaf": lambda self, n=1: Base.leaf(self, n), "__slots__": ()}
            one = Meta(f"Made{number}", (Base,), body)
            one().leaf(number)
            with contextlib.suppress(Declined):
                one.nothing
            one.leaf = Base.leaf
            one().leaf()
            del one.leaf
            self._kept.append(weakref.ref(one, lambda _: self._object.leaf()))
        del self._kept[:-10]

    def loads_modules(self):
        name = f"loaded{self._dice.randrange(1000)}"
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, f"{name}.py"), "w") as file:
                file.write(
                    "def work(n):\n    return work(n - 1) if n else n\nwork(3)\nclass One:\n    pass\n"
                )
            sys.path.insert(0, directory)
            try:
                importlib.invalidate_caches()
                module = importlib.import_module(name)
                importlib.reload(module).work(2)
            finally:
                sys.path.remove(directory)
                sys.modules.pop(name, None)

    # Memory

    def collects(self):
        one = [Child() for _ in range(50)]
        one.append(one)
        one[0].me = one
        del one
        choice = self._dice.randrange(5)
        if choice == 0:
            was = gc.get_threshold()
            gc.set_threshold(1, 1, 1)
            self.calls_from_c()
            gc.set_threshold(*was)
        elif choice == 1:
            gc.freeze(), gc.unfreeze()
        elif choice == 2:
            callback = lambda phase, info: self._object.leaf(len(phase))  # noqa: E731
            gc.callbacks.append(callback)
            gc.collect(1)
            gc.callbacks.remove(callback)
        else:
            gc.collect(choice % 3)

    def walks_the_heap(self):
        if not self._rare(5):
            return
        # The old ones: among the young are tuples that C code still writes. The debug build of
        # CPython 3.14 aborts where they are seen (functools.reduce asserts that its tuple of
        # arguments is its own), without the library, too.
        for one in gc.get_objects(generation=2)[-300:]:
            type(one).__name__, gc.get_referents(one)[:2], sys.getsizeof(one)

    def traces_memory(self):
        if tracemalloc.is_tracing():
            # cpython#128679: stop() crashes threads that allocate without the GIL, which worker.c
            # does once for each tracer.
            mended = sys.version_info >= ((3, 13, 2) if sys.version_info >= (3, 13) else (3, 12, 9))
            tracemalloc.stop() if mended and self._rare(4) else tracemalloc.take_snapshot()
        else:
            tracemalloc.start(3)

    def finalizes(self):
        class Ends:
            def __del__(self):
                raise Declined("in a finalizer")

        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            Ends()
        finally:
            sys.unraisablehook = hook
        cycle = Loud("in a cycle")
        cycle.me = cycle

    # Others who look

    def _hook(self, frame, event, argument):
        self._object.slot
        if self._rare(50):
            frame.f_locals, frame.f_lineno, frame.f_back
        # CPython 3.12 crashes by itself where opcodes are traced.
        if event == "call" and self._rare(4) and sys.version_info[:2] != (3, 12):
            frame.f_trace_opcodes = True
        return self._hook

    def traces_by_itself(self):
        which = self._dice.choice(["settrace", "setprofile"])
        was = getattr(sys, which.replace("set", "get"))()
        getattr(sys, which)(self._hook)
        try:
            self._step()
        finally:
            getattr(sys, which)(was if self._rare(2) else None)

    def leaves_a_hook_on(self):
        getattr(self._dice.choice([sys, threading]), self._dice.choice(["settrace", "setprofile"]))(
            self._dice.choice([None, self._hook])
        )

    def monitors(self):
        if not monitoring:
            return
        tool, events = self._dice.randrange(6), monitoring.events
        if monitoring.get_tool(tool) is None:
            monitoring.use_tool_id(tool, "hunt")
            chosen = [
                events.PY_START, events.PY_RETURN, events.LINE, events.CALL, events.RAISE, events.PY_YIELD,
                events.JUMP,
            ]
            for event in self._dice.sample(chosen, 3):
                answer = self._dice.choice([None, monitoring.DISABLE])
                keeps = event == events.RAISE
                monitoring.register_callback(
                    tool, event, lambda *_, answer=answer, keeps=keeps: None if keeps else answer
                )
                monitoring.set_events(tool, monitoring.get_events(tool) | event)
            monitoring.set_local_events(tool, Child.leaf.__code__, events.PY_START | events.INSTRUCTION)
            self._step()
            monitoring.restart_events()
        if monitoring.get_tool(tool) == "hunt" and self._rare(2):
            monitoring.set_events(tool, 0)
            monitoring.set_local_events(tool, Child.leaf.__code__, 0)
            monitoring.free_tool_id(tool)

    def looks_at_frames(self):
        for frame in sys._current_frames().values():
            while frame:
                frame.f_locals if self._rare(10) else frame.f_code
                frame = frame.f_back
        sys._getframe().f_back.f_lineno
        with open(os.devnull, "w") as nowhere:
            import faulthandler

            faulthandler.dump_traceback(nowhere, all_threads=self._rare(2))

    # Concurrency

    def starts_threads(self):
        threads = [self._thread(Doings.calls_in_a_loop), self._thread(Doings._step)]
        for one in threads:
            one.join(0.2)

    def interrupts_threads(self):
        # What is interrupted outside of these functions leaves a lock of threading's held (`with
        # lock` of CPython 3.13 and 3.14).
        state = types.SimpleNamespace(begun=False, over=False, told=False)

        def works(mine):
            try:
                state.begun = True
                while time.monotonic() < mine._deadline:
                    mine.handles_by_itself()
            finally:
                state.over = True
                while not state.told:
                    time.sleep(0.001)

        # What is interrupted between `finally` and the next line ends without a word, and another
        # thread may have its number then: one that is interrupted as it begins never says so to the
        # thread that waits for that.
        victim = self._thread(works)
        try:
            time.sleep(self._dice.random() / 200)
            for _ in range(100):
                if state.begun and not state.over and victim.is_alive():
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(victim.ident), ctypes.py_object(Interrupt)
                    )
                victim.join(0.05)
                if state.over:
                    break
        finally:
            state.told = True

    def gets_signals(self):
        if not self._first():
            return

        def handler(number, frame):
            self._object.leaf(number)
            if number == signal.SIGALRM:
                raise Interrupt("a signal")

        before = [(number, signal.signal(number, handler)) for number in (signal.SIGUSR2, signal.SIGALRM)]
        try:
            os.kill(MAIN, signal.SIGUSR2)
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            deadline = time.monotonic() + 0.5
            while time.monotonic() < deadline:
                self.calls_in_a_loop()
        except Interrupt:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handled in before:
                signal.signal(number, handled)

    def runs_subinterpreters(self):
        if os.getpid() != MAIN or not self._rare(3):
            return
        one = interpreters.create() if sys.version_info < (3, 13) else interpreters.create("legacy")
        try:
            interpreters.run_string(
                one,
                "def work(n):\n    return work(n - 1) if n else 0\nfor _ in range(100): work(5)\n"
                "try:\n    {}['none']\nexcept KeyError:\n    pass\n"
                + self._dice.choice(["", IMPORT, "import gc; gc.collect()\n"]),
            )
        finally:
            interpreters.destroy(one)

    def forks(self):
        if self._first() and threading.active_count() == 1 and self._rare(4):
            self._fork(self._names)

    def forks_beside_threads(self):
        # Threads that end take tracemalloc's lock without the GIL, and a child waits for ever for
        # one that was taken as it was forked (CPython 3.11 by itself, once in 100 to 2,000 forks).
        if self._first() and threading.active_count() > 1 and not tracemalloc.is_tracing() and self._rare(4):
            self._fork([name for name in IN_A_CHILD if name in self._names], self._rare(3))

    def _fork(self, names, becomes_another=False):
        seed = self._dice.random()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            status = 4
            try:
                if becomes_another:
                    os.execv(sys.executable, [sys.executable, "-c", ANOTHER])
                mine = Doings(random.Random(seed), min(time.monotonic() + 0.3, self._deadline), self._without)
                mine._names = names
                mine._run()
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) or os.WEXITSTATUS(status) != 0:
            sys.stderr.write(f"HUNT: a child of seed {seed}: {status}\n")
            os._exit(3)

    def runs_commands(self):
        if self._rare(20) and os.getpid() == MAIN:
            # With a function of its own for the child it forks, as os.fork() does
            # (forks_beside_threads); without one it need not.
            forks = self._rare(2) and not tracemalloc.is_tracing()
            subprocess.run(["true"], check=True, preexec_fn=self._object.leaf if forks else None)

    def waits(self):
        reader, writer = os.pipe()
        thread = self._thread(lambda _: os.write(writer, b"x"))
        os.read(reader, 1)
        thread.join()
        os.close(reader), os.close(writer)
        time.sleep(self._dice.random() / 100)
        os.stat("/")

    def switches_often(self):
        was = sys.getswitchinterval()
        sys.setswitchinterval(self._dice.choice([1e-6, 1e-4, 5e-3]))
        self.starts_threads()
        sys.setswitchinterval(was)

    def reinstalls(self):
        """The library itself is taken out and put in again while all this happens."""
        if not self._rare(4):
            return
        try:
            import probescope
        except ImportError:  # the hunt looks whether this program fails without the library
            return self._step()
        probescope.uninstall()
        self._step()
        probescope.install()


def main():
    seed, seconds, *without = sys.argv[1:]
    without = (without or [""])[0].split(",")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        without.append("leaves_a_hook_on")
    # One program in four has subinterpreters.
    alone = int(seed) % 4 == 0 and interpreters
    without += NOT_BESIDE_SUBINTERPRETERS if alone else ["runs_subinterpreters"]
    deadline = time.monotonic() + float(seconds)
    Doings(random.Random(0), 0, []).handles_by_itself()  # which imports what a child may not import
    print("ready", flush=True)
    all_doings = [
        Doings(random.Random(int(seed) + number), deadline, without) for number in range(1 if alone else 3)
    ]
    threads = [threading.Thread(target=one._run) for one in all_doings[1:]]
    for thread in threads:
        thread.start()
    all_doings[0]._run()
    for thread in threads:
        thread.join()
    sys.settrace(None), sys.setprofile(None), threading.settrace(None), threading.setprofile(None)
    print("done", *(one._steps for one in all_doings), flush=True)


main()
