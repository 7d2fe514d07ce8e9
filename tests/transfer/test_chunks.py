"""What the other side has of a large value does not travel again, however it is divided up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.transfer.values.packing.chunks import Partial, runs_to_send, sent_bytes
from gpulease.transfer.values.packing.pickling import Packed
from gpulease.transfer_next.hashing import CHUNK, chunk_digests, split
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


def packed(*buffers):
    views = [memoryview(buffer) for buffer in buffers]
    digests = tuple(chunk_digests(view) for view in views)
    return Packed(("n:x",), b"", {}, views, b"", 0.0, chunks=digests)


def chunks_of(*buffers):
    digests = (split(chunk_digests(memoryview(buffer))) for buffer in buffers)
    both = (zip(*each, strict=True) for each in zip(digests, map(pieces, buffers), strict=True))
    return {digest: piece for each in both for digest, piece in each}


def pieces(buffer):
    return [memoryview(buffer)[at : at + CHUNK] for at in range(0, len(buffer), CHUNK)]


@given(
    size=st.integers(5 * CHUNK, 9 * CHUNK),
    changed=st.sets(st.integers(0, 5 * CHUNK - 1), max_size=6),
    more=st.integers(0, CHUNK),
)
def test_a_buffer_is_whole_again(size, changed, more):
    old = bytearray(np.random.default_rng(size).bytes(size))
    new = old[:]
    for at in changed:
        new[at] ^= 1
    new += b"n" * more
    of = packed(new)
    sent = runs_to_send(of, (), set(chunks_of(old)))
    if not sent:
        assert len({at // CHUNK for at in changed}) + 2 > size // CHUNK / 2 or size < 6 * CHUNK
        return
    runs = list(sent[0])
    blobs = [bytes(new[first * CHUNK : last * CHUNK]) for first, last in runs]
    assert sum(map(len, blobs)) == sent_bytes(runs, len(new))
    partial = Partial(len(new), split(of.chunks[0]), runs, blobs)
    assert partial.whole(chunks_of(old)) == new
    assert partial.whole({}) is None, "what is not there is not made up"


def test_what_is_small_or_mostly_new_travels_whole():
    old, new = bytes(3 * CHUNK), bytes(3 * CHUNK)
    assert runs_to_send(packed(new), (), set(chunks_of(old))) == {}, "little to save"
    mixed = [bytearray(np.random.default_rng(k).bytes(8 * CHUNK)) for k in range(8)]
    same = mixed[0]
    assert set(runs_to_send(packed(*mixed[:2]), (), set(chunks_of(same)))) == {0}
    assert runs_to_send(packed(*mixed), (), set(chunks_of(same))) == {}, "an eighth is not worth it"
    assert runs_to_send(packed(same), (0,), set(chunks_of(same))) == {}, "it is held anyway"


KINDS = {
    "a dict of arrays": (
        "d = {f'a{k}': np.full(MIB // 4, k, 'f4') for k in range(32)}",
        "d['a7'][5] += 1",
        "sum(float(v.sum()) for v in d.values())",
    ),
    "one array": ("d = np.arange(8 * MIB, dtype='f4')", "d[MIB] += 1", "float(d[: 2 * MIB].sum())"),
    "columns in Fortran's order": (
        "d = [np.asfortranarray(np.arange(4 * MIB, dtype='f8').reshape(1024, -1))]",
        "d[0][3, 3] += 1",
        "float(d[0][:, 3].sum())",
    ),
    "a frame": (
        "import pandas as pd\n"
        "d = pd.DataFrame({f'c{k}': np.arange(MIB, dtype='f8') + k for k in range(4)})\n"
        "d['n'] = np.arange(MIB)",
        "d.loc[3, 'n'] += 1",
        "float(d.to_numpy().sum())",
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


def test_where_the_older_value_is_gone_all_of_it_comes(pair):
    pair.home("import numpy as np\nd = [np.arange(2.0**21), np.arange(2.0**21)]")
    pair.gpu("d[0][0] = 7")
    assert "d" not in pair.ns
    pair.side.unavailable.aside.clear()
    pair.home("seen = d[0][0] + d[1].sum()")
    assert pair.last.bytes > 32 * MIB
    assert pair.ns["seen"] == 7 + np.arange(2.0**21).sum()


def test_where_the_older_value_changed_all_of_it_comes(pair):
    pair.home("import numpy as np\nd = [np.arange(2.0**21), np.arange(2.0**21)]")
    pair.gpu("d[0][0] = 7")
    pair.side.unavailable.aside["d"][1][3] = -1.0  # as code that nobody knows of could
    pair.home("seen = d[0][0] + d[1].sum()")
    assert pair.ns["seen"] == 7 + np.arange(2.0**21).sum()


def test_a_read_only_array_stays_one(pair):
    pair.home(
        "import numpy as np\nd = [np.arange(2.0**21), np.arange(2.0**21)]\n"
        "d[1].flags.writeable = False"
    )
    pair.gpu("d[0][0] = 7")
    pair.home("seen = [v.flags.writeable for v in d], [v.flags.owndata for v in d]")
    assert pair.last.bytes < 4 * MIB
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
