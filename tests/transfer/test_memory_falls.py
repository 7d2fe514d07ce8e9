"""`del big` frees it within the cell, whatever the two sides remember of it."""

import pytest

from gpulease.transfer.registry import Borrowed

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
@pytest.mark.parametrize("held", [False, True])
def test_memory_falls_within_the_cell(pair, kind, held):
    make, _, _ = KINDS[kind].rpartition("\n")
    again = REF.get(kind, "ref = weakref.ref(big)")
    pair.home(PRELUDE + "\n" + make)
    outside = [pair.ns["big"]] if held else []
    for _ in range(2):
        pair.gpu("_t = big is None")
        pair.home("_t = big is None")
    pair.gpu("touched = [big]\ndel touched")
    outside.clear()
    pair.gpu(again + "\ndel big\n" + FREED + "\ndel ref")
    pair.home("assert 'big' not in globals()\n" + make)
    pair.gpu("_t = big is None")
    pair.home(again + "\ndel big\n" + FREED + "\ndel ref")
    pair.gpu("assert 'big' not in globals()")


def test_a_name_bound_anew_at_home_frees_the_older_value(pair):
    pair.home("import numpy as np, weakref\nbig = np.ones(500_000)")
    pair.gpu("big = np.zeros(4_000_000)")
    pair.home("big = 1")
    assert not pair.side.unavailable.aside


def test_a_refusal_keeps_nothing_alive(pair):
    from gpulease.errors import GPULeaseError

    pair.home("import weakref\nclass P: pass\nx = [memoryview(b''), P()]\nref = weakref.ref(x[1])")
    try:
        pair.gpu("x")
    except GPULeaseError as error:
        caught = error  # as IPython does: sys.last_value
    assert caught.reason == "cannot_move"
    pair.home("del x")
    assert pair.ns["ref"]() is None


def test_what_is_kept_again_is_asked_about_once():
    """Each arrival of a unit keeps it: the question before would be asked for ever, too."""
    table, asked, unit = Borrowed(), [], []

    def question(name):
        return lambda: asked.append(name) or True

    table.keep({"one": unit}, question("first"))
    table.keep({"one": unit, "two": []}, question("second"))
    asked.clear()  # another thread asks, too
    table.dropped()
    assert set(asked) == {"second"}
    assert sorted(table.kept()) == ["one", "two"]
