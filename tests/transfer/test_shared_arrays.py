"""Arrays that show each other's memory, and who holds one of them outside of every variable."""

import types

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from tests.transfer.kinds import play

#: How memory is made, and what may be shown of it.
MAKES = {
    "one": "w = np.arange(24.)",
    "reshaped": "w = np.arange(24.).reshape(4, 6)",
    "in Fortran's order": "w = np.asfortranarray(np.arange(24.).reshape(4, 6))",
    "rows": "w = np.zeros(24, dtype=[('x', 'f8'), ('n', 'i4')])",
}
VIEWS = (
    "w.T", "w[::2]", "w[1:]", "w[::-1]", "w[2:3]", "w.view(np.matrix)", "w.view(K)",
    "w['x'] if w.dtype.names else w[..., :2]",
)  # fmt: skip
WRITES = ("{0}[...] = 7", "{0}[-1:] = 5", "{0} = {0}[:1]", "{0} = {0}.copy()", "del {0}")


def plainly(cells):
    space = types.ModuleType("__main__").__dict__
    for cell in cells:
        exec(cell, space)
    return space


def seen(space, names):
    """Return what arrays hold and which show the same memory."""
    there = [name for name in names if name in space]
    content = {n: (type(space[n]).__name__, space[n].shape, space[n].tolist()) for n in there}
    return content, {(a, b) for a in there for b in there if np.shares_memory(space[a], space[b])}


@given(
    by_need=st.booleans(),
    make=st.sampled_from(list(MAKES.values())),
    views=st.lists(st.sampled_from(VIEWS), min_size=1, max_size=3),
    held=st.sets(st.sampled_from(["w", "v0", "v1", "v2"]), min_size=1),
    writes=st.lists(
        st.tuples(st.booleans(), st.sampled_from(["w", "v0"]), st.sampled_from(WRITES)),
        min_size=1, max_size=3,
    ),
)  # fmt: skip
def test_who_holds_one_outside_sees_what_is_written(
    eager, lazy, by_need, make, views, held, writes
):
    pair = lazy if by_need else eager
    made = "seen = 0\nimport numpy as np\nclass K(np.ndarray): pass\n" + make
    made += "".join(f"\nv{i} = {view}" for i, view in enumerate(views))
    names = ["w", *(f"v{i}" for i in range(len(views)))]
    cells = [(False, made)]
    gone = set()
    for beside, name, write in writes:
        if name not in gone:
            cells.append((beside, write.format(name)))
            gone |= {name} if write.startswith("del") else set()
    plain = plainly([made])
    outside = {name: plain[name] for name in held & set(names)}
    for _, cell in cells[1:]:
        exec(cell, plain)

    play(pair, [made], beside_gpu=False)
    kept = {name: pair.ns[name] for name in outside}
    told = set()
    pair.gpu("1")
    for beside, cell in [*cells[1:], (False, "globals()")]:
        (pair.gpu if beside else pair.home)(cell)
        told.update(
            n for heard in (pair.last, pair.after) for each in heard.notes for n in each.names
        )
    note(f"{cells}, held outside: {held}, told: {told}")
    assert seen(pair.ns, names) == seen(plain, names)
    assert seen(kept, kept)[0] == seen(outside, outside)[0] or told
    same = {name for name in kept if pair.ns.get(name) is kept[name]}
    assert same | told >= {name for name in outside if plain.get(name) is outside[name]}


def test_another_form_of_a_view_that_is_held_is_refused_by_name(eager):
    made = "import numpy as np\nclass K(np.ndarray): pass\nw = np.arange(6.); v = w[1:5].view(K)"
    play(eager, [f"seen = 0\n{made}"], beside_gpu=False)
    held = eager.ns["v"]
    eager.gpu("v.unit = ['m']; v.shape = (2, 2); v[0, 0] = 9")
    with pytest.raises(
        GPULeaseError, match=r"w cannot travel .*the K in it .* cannot be given its new shape"
    ):
        eager.home("w")
    assert held.shape == (4,)
    eager.gpu("v = v.copy(); w[2] = 7")
