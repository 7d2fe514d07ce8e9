"""numba's functions travel as source and options; without numba by a package of its shape."""

import sys

import pytest

from gpulease.transfer import frameworks

#: What gpulease asks of numba, and what made its functions hard to carry: weak references to things
#: that are gone, compiled code, and a table of the process.
DISPATCHER = """
import threading, uuid, weakref

class Gone: pass

class Dispatcher:
    _memo = weakref.WeakValueDictionary()

    def __init__(self, py_func, locals={}, targetoptions={}):
        self.py_func, self.locals, self.targetoptions = py_func, locals, targetoptions
        self._uuid, self._can_compile = str(uuid.uuid4()), True
        self._memo[self._uuid] = self
        self.overloads, self._lock = {}, threading.RLock()
        self._weak = weakref.proxy(Gone())

    def compile(self, sig):
        for name in self.py_func.__code__.co_names:
            assert name in self.py_func.__globals__, f"untyped global name {name}"
        self.overloads[sig] = compile("0", "machine code", "eval")

    def _compile_for_args(self, x):
        self.compile(type(x))
        return self.py_func

    def __call__(self, x):
        if not self._can_compile and type(x) not in self.overloads:
            x = next(iter(self.overloads))(x)
        if type(x) in self.overloads:
            return self.py_func(x)
        return self._compile_for_args(x)(x)

    def _reduce_states(self):
        sigs = [] if self._can_compile else list(self.overloads)
        return dict(uuid=self._uuid, py_func=self.py_func, locals=self.locals,
                    targetoptions=self.targetoptions, can_compile=self._can_compile, sigs=sigs)

    @classmethod
    def _rebuild(cls, uuid, py_func, locals, targetoptions, can_compile, sigs):
        if uuid in cls._memo:
            return cls._memo[uuid]
        self = cls(py_func, locals, targetoptions)
        self._memo[uuid] = self
        self._uuid = uuid
        for sig in sigs:
            self.compile(sig)
        self._can_compile = can_compile
        return self

    def __reduce__(self):
        raise TypeError("only by numba's own pickler")
"""
JIT = """
from numba.core.dispatcher import Dispatcher

def jit(*sigs, **options):
    def made(function):
        out = Dispatcher(function, {}, options)
        for sig in sigs:
            out.compile(sig)
        out._can_compile = not sigs
        return out
    return made
"""


@pytest.fixture
def pair(monkeypatch, tmp_path, new_pair):
    (tmp_path / "numba" / "core").mkdir(parents=True)
    (tmp_path / "numba" / "__init__.py").write_text(JIT)
    (tmp_path / "numba" / "core" / "__init__.py").write_text("")
    (tmp_path / "numba" / "core" / "dispatcher.py").write_text(DISPATCHER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("numba", "numba.core", "numba.core.dispatcher"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delitem(sys.modules, "gpulease.transfer.frameworks.numba", raising=False)
    monkeypatch.delitem(frameworks._loaded, "numba", raising=False)
    made = new_pair()
    made.attach()
    yield made
    for name in [n for n in sys.modules if n.partition(".")[0] == "numba"]:
        del sys.modules[name]
    sys.modules.pop("gpulease.transfer.frameworks.numba", None)
    frameworks._loaded.pop("numba", None)
    frameworks._by_type.clear()


def test_a_compiled_function_runs_on_both_sides_and_stays_itself(pair):
    pair.home(
        "import numba\nk = 3\n@numba.jit(fastmath=True)\ndef f(x): return x * k\n"
        "hold = [f]; a = f(2)"
    )
    pair.gpu("b = f(3); same = hold[0] is f; options = f.targetoptions; k = 4")
    pair.home("c = f(1), hold[0] is f, same, a, b, options")
    assert pair.ns["c"] == (4, True, True, 6, 9, {"fastmath": True})
    assert pair.ns["f"].overloads  # home's own compiled code is as it was


def test_one_made_on_the_gpu_is_compiled_at_home_when_it_is_called(pair):
    pair.gpu("import numba\n@numba.jit()\ndef h(x): return x + 1\nb = h(1)")
    pair.home("fresh = not h.overloads; c = h(2)")
    assert (pair.ns["fresh"], pair.ns["c"], len(pair.ns["h"].overloads)) == (True, 3, 1)


def test_signatures_that_were_asked_for_are_those_on_the_other_side(pair):
    """What it calls is bound after it was loaded, so it is compiled when it is first called."""
    pair.home("import numba\ng = abs\n@numba.jit(float)\ndef f(x): return g(x) / 2")
    pair.gpu("a = f(3); sigs = list(f.overloads)")
    pair.home("b = a, sigs, f(5)")
    assert pair.ns["b"] == (1.5, [float], 2.5)
    pair.gpu("import numba\n@numba.jit(float)\ndef late(x): return g(x)")
    pair.home("hold = late")
    pair.gpu("seen = late is hold")
    pair.home("seen, kept = seen, type(late(2))")
    assert (pair.ns["seen"], pair.ns["kept"]) == (True, float)
