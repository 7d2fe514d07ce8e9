"""What the other side has of a large value does not travel again, however it is divided up."""

import numpy as np
import pytest

from gpulease.errors import GPULeaseError
from gpulease.transfer import pieces
from gpulease.wire.memory import OwnedBytes
from tests.transfer.kinds import empty, open_pair
from tests.transfer.pair import Pair

MIB = 2**20


@pytest.fixture(scope="module")
def shared():
    with open_pair() as pair:
        yield pair


@pytest.fixture
def pair(shared):
    empty(shared)
    return shared


KINDS = {
    "one array": ("d = np.arange(8 * MIB, dtype='f4')", "d[MIB] += 1", "float(d[: 2 * MIB].sum())"),
    "columns in Fortran's order": (
        "d = [np.asfortranarray(np.arange(4 * MIB, dtype='f8').reshape(1024, -1))]",
        "d[0][3, 3] += 1",
        "float(d[0][:, 3].sum())",
    ),
    "more than before": (
        "d = [np.full(MIB, k, 'f4') for k in range(8)]",
        "d.insert(1, np.full(MIB, len(d), 'f4'))",
        "[float(v[0]) for v in d]",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_a_large_value_costs_what_changed(pair, kind):
    make, change, look = KINDS[kind]
    make = f"import numpy as np\nMIB = 2**20\n{make}"
    plain = {}
    for source in (make, change, change, f"seen = {look}"):
        exec(source, plain)
    pair.home(make)
    pair.gpu(f"{change}\nthere = {look}")
    pair.home(f"here = {look}")
    assert pair.last.bytes < 10 * MIB
    assert pair.ns["here"] == pair.ns["there"]
    pair.home(change)
    pair.gpu(f"seen = {look}")
    assert pair.last.bytes < 10 * MIB
    pair.home("seen")
    assert pair.ns["seen"] == plain["seen"]


def test_values_that_are_equal_are_still_two(pair):
    pair.home("import numpy as np\nd = {'a': np.zeros(2**21), 'b': np.zeros(2**21), 'n': [0]}")
    pair.gpu("d['n'][0] = 1")
    pair.home("d['a'][0] = 5\nseen = d['b'][0], d['n']")
    assert pair.last.bytes < MIB
    assert pair.ns["seen"] == (0, [1])
    pair.gpu("d['b'][1] = 6\nseen = d['a'][:2].tolist(), d['b'][:2].tolist()")
    pair.home("seen")
    assert pair.ns["seen"] == ([5, 0], [0, 6])


def test_a_read_only_array_stays_one(pair):
    pair.home(
        "import numpy as np\nd = [np.arange(2.0**21), np.arange(2.0**21)]\n"
        "d[1].flags.writeable = False"
    )
    pair.gpu("d[0][0] = 7")
    pair.home("seen = [v.flags.writeable for v in d], [v.flags.owndata for v in d]")
    assert pair.last.bytes < 5 * MIB
    assert pair.ns["seen"][0] == [True, False]


def test_memory_is_asked_for_all_of_it(monkeypatch):
    room = [2**40]
    pair = Pair(monkeypatch, {"memory_margin": 0}, available=lambda: room[0])
    pair.attach()
    try:
        pair.home("import numpy as np\nd = [np.arange(2.0**21), np.arange(2.0**21)]")
        pair.gpu("d[0][0] = 7")
        room[0] = 40 * MIB  # more than what travels, and less than what is made of it
        with pytest.raises(GPULeaseError, match="memory does not hold them"):
            pair.home("d[0][0]")
        room[0] = 2**40
        assert pair.home("seen = d[0][0]") is None
        assert pair.ns["seen"] == 7
    finally:
        pair.close()


def test_a_large_array_is_received_into_its_own_memory(pair):
    """Neither side holds it twice, and the array that arrives owns its memory as a new one does."""
    make = (
        "import numpy as np\n"
        "a = np.arange(2**20 + 5.0); f = np.asfortranarray(a[: 2**20].reshape(2, -1))\n"
        "t = a.astype('M8[s]'); r = np.zeros(2**19, [('x', 'i4'), ('y', 'f8')])\n"
        "a.flags.writeable = False; m = np.ones(2**19, np.dtype('f8', metadata={'unit': 'm'}))"
    )
    look = "[(v.base is None, v.flags.owndata, v.flags.writeable, v.strides) for v in (a, f, t, r)]"
    received, place = [], pieces._place
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_place", lambda *said: received.append(place(*said)) or received[-1])
        pair.gpu(make)
        pair.home("a, f, t, r")
    addresses = {address(each) for each in received if type(each) is np.ndarray}
    assert addresses == {address(pair.ns[name]) for name in "aft"}
    plain = {}
    exec(f"{make}\nseen = {look}", plain)
    pair.home(f"seen = {look}; r[5] = 1, 2; f[1, 0] = -1")
    assert pair.ns["seen"] == plain["seen"]
    pair.gpu("there = a[-1], f[1, 0], str(t[-1]), r[5].item()")
    pair.home("there")
    assert pair.ns["there"] == (2**20 + 4, -1, "1970-01-13T03:16:20", (1, 2.0))
    assert dict(pair.ns["m"].dtype.metadata) == {"unit": "m"}


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_that_cannot_be_had_as_asked_is_bytes():
    forms = [["nothing"], ["numpy", "no type", [1], "C"], ["numpy", "<f8", [3], "C"],
             ["numpy", "|O", [2**19], "C"]]  # fmt: skip
    found = pieces.memory_for({"forms": [[n, *form] for n, form in enumerate(forms)]}, [2**22] * 5)
    assert [(type(each), len(each)) for each in found] == [(OwnedBytes, 2**22)] * 5
