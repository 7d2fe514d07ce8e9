"""Libraries too large for this suite: by modules that have what is asked of them."""

import sys
import threading
import types
from collections import defaultdict

import pytest

from gpulease.transfer import frameworks
from gpulease.transfer.switch.planning import Wanted, plan
from gpulease.transfer.values.packing.shipment import Incoming
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.api import TransferSettings
from tests.transfer.companion_main import run


class JITFunction:
    """As triton's: made of a function, with a lock and what was compiled for a device."""

    def __init__(self, fn, do_not_specialize=()):
        self.fn, self.raw_src = fn, f"def {fn.__name__}"
        self.do_not_specialize = list(do_not_specialize)
        self._hash_lock = threading.RLock()
        self.hash, self.kernel, self.used_global_vals = None, None, {}
        self.device_caches = defaultdict(self.create_binder)
        self.__globals__, self.__name__ = fn.__globals__, fn.__name__

    def create_binder(self):
        return {}, None

    def compile(self):
        self.hash, self.device_caches[0] = "known", threading.Lock()


class NeuralNet:
    """As skorch's: it pickles what is on the device apart from all else."""

    def __init__(self, module):
        self.module_ = module

    def __getstate__(self):
        return {"bytes": repr(self.module_).encode()}


def pretend(monkeypatch, package, **modules):
    """Put modules of a library in place, and have what gpulease knows of it loaded for them."""
    for name, content in {package: {}, **modules}.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    monkeypatch.setattr(frameworks, "_loaded", {})
    monkeypatch.setattr(frameworks, "_by_type", {})
    # Kept for the other tests as well as taken away: theirs is another one.
    monkeypatch.setitem(sys.modules, f"gpulease.transfer.frameworks.{package}", None)
    monkeypatch.delitem(sys.modules, f"gpulease.transfer.frameworks.{package}")


@pytest.fixture
def sides(monkeypatch):
    """Two sides in this process, and what brings everything from the first to the second one."""
    here, there = types.ModuleType("__main__"), types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", here)
    near = Side("a", vars(here), set(vars(here)), TransferSettings())
    far = Side("h", vars(there), set(vars(there)), TransferSettings())

    def bring():
        header, blobs = plan(near, Wanted(everything=True)).encode()
        assert far.receive(Incoming.decode(header, [bytearray(blob) for blob in blobs])).ok
        return vars(there)

    return vars(here), bring, far


def test_a_triton_kernel_travels_as_its_source_and_is_compiled_anew(monkeypatch, sides):
    jit = {"JITFunction": JITFunction, "ConstexprFunction": JITFunction}
    pretend(monkeypatch, "triton", **{"triton.runtime": {}, "triton.runtime.jit": jit})
    here, bring, _ = sides
    here["jit"] = JITFunction
    run(here, "def add(x): return x + one\none = 1\nkernel = jit(add, ['x']); del add, jit")
    run(here, "also = [kernel]\ndef call(x): return kernel.fn(x)\nkernel.compile()")
    there = bring()
    kernel = there["kernel"]
    assert type(kernel) is JITFunction
    assert there["also"][0] is kernel
    assert (kernel.raw_src, kernel.do_not_specialize, kernel.__name__) == ("def add", ["x"], "add")
    assert (kernel.hash, kernel.used_global_vals, dict(kernel.device_caches)) == (None, {}, {})
    assert kernel.device_caches[0] == ({}, None)
    assert kernel._hash_lock.acquire(blocking=False)
    assert kernel.__globals__ is there
    there["one"] = 2
    assert there["call"](1) == 3


def test_a_skorch_net_and_its_module_by_name_stay_one(monkeypatch, sides):
    pretend(monkeypatch, "skorch", skorch={"NeuralNet": NeuralNet})
    here, bring, _ = sides
    here["module"] = [1]
    here["net"] = NeuralNet(here["module"])
    there = bring()
    assert there["net"].module_ is there["module"]


def test_a_catboost_pool_is_refused_in_words(monkeypatch, sides):
    base = type("_PoolBase", (), {"__module__": "_catboost"})
    pool = type("Pool", (base,), {"__module__": "catboost.core"})
    pretend(monkeypatch, "catboost", **{"catboost.core": {"Pool": pool}})
    here, bring, far = sides
    here["P"], here["n"] = pool(), 1
    there = bring()
    assert there["n"] == 1
    assert "P" not in there
    assert far.ledger.remote["P"].blocker.startswith("a catboost Pool (make it again")
