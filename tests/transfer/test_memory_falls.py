"""`del big` frees it within the cell, whatever the two sides remember of it."""

import pytest

#: Frees within the cell: waits (bounded) until nothing holds the payload any more.
FREED = (
    "import gc, time\n"
    "_end = time.monotonic() + 5\n"
    "while ref() is not None and time.monotonic() < _end: time.sleep(0.01)\n"
    "assert ref() is None, [(type(r), str(r)[:300]) for r in gc.get_referrers(ref())]"
)
KINDS = {
    "array": "big = np.ones(500_000)\nref = weakref.ref(big)",
    "large array": "big = np.ones(4_000_000)\nref = weakref.ref(big)",
    "list": "big = [Payload()]\nref = weakref.ref(big[0])",
    "dict": "big = {'k': Payload()}\nref = weakref.ref(big['k'])",
    "set": "big = {Payload()}\nref = weakref.ref(next(iter(big)))",
    "instance": "big = Payload()\nref = weakref.ref(big)",
    "frame": "import pandas as pd\nbig = pd.DataFrame({'a': np.ones(9)})\nref = weakref.ref(big)",
}  # fmt: skip
PRELUDE = "import numpy as np, weakref\nclass Payload:\n    pass"
REF = {
    "list": "ref = weakref.ref(big[0])",
    "dict": "ref = weakref.ref(big['k'])",
    "set": "ref = weakref.ref(next(iter(big)))",
}


@pytest.mark.parametrize("kind", KINDS)
def test_memory_falls_within_the_cell(pair, kind):
    make, _, _ = KINDS[kind].rpartition("\n")
    again = REF.get(kind, "ref = weakref.ref(big)")
    pair.home(PRELUDE + "\n" + make)
    for _ in range(2):
        pair.gpu("_t = big is None")
        pair.home("_t = big is None")
    pair.gpu("touched = [big]\ndel touched")
    pair.gpu(again + "\ndel big\n" + FREED + "\ndel ref")
    pair.home("assert 'big' not in globals()\n" + make)
    pair.gpu("_t = big is None")
    pair.home(again + "\ndel big\n" + FREED + "\ndel ref")
    pair.gpu("assert 'big' not in globals()")
