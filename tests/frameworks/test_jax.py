"""JAX on two sides of the engine in this process, in turns."""

# ruff: noqa: E501 - one cell a line

import pytest

from gpulease.errors import GPULeaseError
from gpulease.transfer.holders import is_kept
from tests.frameworks.test_kinds_of_torch import sides  # noqa: F401 - a fixture
from tests.transfer.companion_main import run
from tests.transfer.kinds import plain

pytestmark = pytest.mark.filterwarnings("ignore")
HEAD = "import jax, jax.numpy as jnp, numpy as np, dataclasses\nseen = []\n"
CASES = {
    "arrays": [
        "x = jnp.arange(6.).reshape(2, 3); y = x; w = jnp.asarray(2); n = np.asarray(x); k = jax.random.key(3); b = jnp.ones(2, jnp.bfloat16)",
        "seen += [y is x, (w * x).tolist(), n.tolist(), n.flags.writeable, jax.random.normal(k, (2,)).tolist(), b.tolist()]",
        "seen += [x.at[0, 0].set(9).tolist(), (b + w).dtype.name, repr(jax.random.split(k))]",
    ],
    "compiled functions, and what they read": [
        "scale = 2.\ndef twice(v): return v * scale\n@jax.jit\ndef f(v): return twice(v) + shift\nshift = jnp.ones(2); f(shift); step = jax.jit(lambda v, n: v * n, static_argnums=1)",
        "seen += [f(jnp.arange(2.)).tolist(), step(shift, 3).tolist(), f.__name__, f.__wrapped__.__name__]",
        "seen += [f(shift).tolist(), jax.grad(lambda v: f(v).sum())(shift).tolist()]; shift = shift + 1",
        "shift = jnp.ones(2); scale = 5.\n@jax.jit\ndef f(v): return twice(v) + shift",
        "seen.append(f(shift).tolist())",
    ],
    "classes in the trees": [
        "@jax.tree_util.register_dataclass\n@dataclasses.dataclass\nclass P:\n    a: object\n    b: object\np = P(jnp.ones(2), 3.)\n"
        "class Q:\n    def __init__(self, v): self.v = v\njax.tree_util.register_pytree_node(Q, lambda q: ((q.v,), None), lambda _, c: Q(*c))\nq = Q(p)",
        "p = jax.tree.map(lambda v: v * 2, p); seen += [p.a.tolist(), p.b, len(jax.tree.leaves(q))]",
        "q = jax.jit(lambda q: jax.tree.map(lambda v: v + 1, q))(q); seen += [q.v.b.tolist(), str(jax.tree.structure(q))]",
    ],
    "derivatives of its own": [
        "@jax.custom_jvp\ndef g(x): return x * x\ng.defjvp(lambda p, t: (g(p[0]), 7. * t[0])); relu = jax.nn.relu",
        "seen += [float(jax.grad(g)(2.)), float(relu(-1.)), relu is jax.nn.relu]",
        "seen.append(float(jax.jit(jax.grad(g))(3.)))",
    ],
}  # fmt: skip
#: What a compiled function would go on using: first cell, second one, words of the refusal.
STALE = {
    "another value": ("k = 2.\n@jax.jit\ndef f(v): return v * k\nf(1.)", "k = 3.; f(1.)", "another k"),
    "another function": ("def g(v): return v\n@jax.jit\ndef f(v): return g(v)\nf(1.)", "def g(v): return -v\nf(1.)", "another g"),
    "an array's new content": ("a = np.ones(2)\n@jax.jit\ndef f(v): return v + a\nf(1.)", "a[0] = 5; f(1.)", "another a"),
    "a list": ("l = []\n@jax.jit\ndef f(v):\n    l.append(v.shape)\n    return v\nf(1.)", "f(1.)", "with what l held"),
    "a text": ("@jax.jit\ndef f(v):\n    print('tracing')\n    return v\nf(1.)", "f(1.)", "prints"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_in_one_process(name, sides):  # noqa: F811
    cells = [HEAD + CASES[name][0], *CASES[name][1:]]
    expected = plain(cells)
    made, turn = sides
    run(vars(made[0][0]), cells[0])
    for number, source in enumerate(cells[1:]):
        parcel, changed = turn(number % 2, 1 - number % 2)
        assert (parcel.away, list(filter(is_kept, parcel.pins)), changed) == ({}, [], [])
        run(vars(made[1 - number % 2][0]), source)
    assert vars(made[(len(cells) - 1) % 2][0])["seen"] == expected


@pytest.mark.parametrize("name", STALE)
def test_what_was_compiled_is_not_compiled_again_with_something_else(name, sides):  # noqa: F811
    first, second, words = STALE[name]
    made, turn = sides
    run(vars(made[0][0]), HEAD + first)
    turn(0, 1)
    with pytest.raises(GPULeaseError, match=words):
        exec(second, vars(made[1][0]))
