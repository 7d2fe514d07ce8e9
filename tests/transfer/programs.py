"""Random notebook programs, and what one process makes of them.

`cells` draws cells of plain statements over a few names.
"""

import sys
import types
from collections import Counter, OrderedDict

from hypothesis import strategies as st

from gpulease.verify.picture import picture
from tests.transfer.companion_main import run

NAMES = ("a", "b", "c", "d")
#: What is compared at a program's end.
WATCHED = (*NAMES, "errors")

STATEMENTS = (
    "{x} = []",
    "{x} = {{}}",
    "{x} = [1, 2.5, 'text', None]",
    "{x} = {y}",
    "{x}, {y} = {y}, {x}",
    "{x} = [{y}, {z}]",
    "{x} = ({y}, {z})",
    "{x} = {{'k': {y}, 'm': [{z}]}}",
    "{x} = {{1, 2, 3}}",
    "{x} = bytearray(b'abc')",
    "{x} = {y}[0]",
    "{x} = {y}['k']",
    "{x} = len({y})",
    "{x} = list({y})",
    "del {x}",
    "{x}.append({y})",
    "{x}.append(1)",
    "{x}[0] = {y}",
    "{x}['k'] = {y}",
    "{x}.add(5)",
    "{x} += [3]",
    "{x} += 1",
    "{x}.pop()",
    "{x}.clear()",
    "{x}[0].append(7)",
    "{x} = np.arange(12.0)",
    "{x} = np.arange(12.0)[2:8]",
    "{x} = {y}[1:5]",
    "{x} = {y}[::2]",
    "{x} = np.arange(12.0).reshape(3, 4)",
    "{x} = (v for v in {y}[1:5])",
    "def {x}(v={y}):\n    for n in range(0, 9, 2):\n        yield v[n : n + 2]",
    "{x} = {y}.flat",
    "{x}[...] = 3",
    "{x}[1] = 42",
    "{x} = {y}.reshape(3, 4).T",
    "{x} *= 2",
    "{x} = {y}.copy()",
    "def {x}(v=[]): v.append(len(v)); return v",
    "def {x}(): return {y}",
    "def {x}():\n    global {y}\n    {y} = [9]",
    "{x} = {y}()",
    "{y}()",
    "{x} = lambda: {y}",
    "{x} = (lambda v: (lambda: v.append(1) or v))({y})",
    "def {x}(n=0):\n    def up():\n        nonlocal n\n        n += 1\n        return n\n"
    "    return up",
    "{x}.tag = {y}",
    "class {x}:\n    kept = []\n    def put(self, v=1): self.kept.append(v); return self",
    "class {x}:\n    def __init__(self): self.v = {y}\n    def get(self): return self.v",
    "{x}.kept = [{y}]",
    "del {x}.kept",
    "{x} = {y}.get()",
    "{x} = {y}().put()",
    "{x}.v = {y}",
    "{x} = functools.partial({y}, {z})",
    "{x} = defaultdict(list)",
    "{x}['q'].append({y})",
    "{x} = deque([{y}, 1], maxlen=3)",
    "{x} = Counter('abca')",
    "{x} = OrderedDict(k={y}, m=1)",
    "{x}.move_to_end('k')",
    "{x} = Bag([{y}, 1])",
    "{x} = Own({y})",
    "{x}.v.append({y})",
    "{x} = object()",
    "{x} = [float('nan')] * 2",
    "{x} = ValueError({y})",
    "{x}.__cause__ = ValueError(1)",
    "{x} = iter({y})",
    "{x} = (v for v in {y})",
    "{x} = [(v for v in {y})]",
    "{x}.append(v for v in {y})",
    "{x}['k'] = (v for v in {y})",
    "{x} = next({y}[0])",
    "{x} = next({y}['k'])",
    "{x} = list({y}[0])",
    "def {x}(v={y}):\n    for n in range(9):\n        v.append(n)\n        yield n",
    "{x} = [threading.Lock()]",
    "{x}.v = threading.Lock()",
    "{y}[0].acquire(False)",
    "{x} = next({y})",
    "{x} = random.random()",
    "random.seed(5)",
    "{x} = np.random.rand()",
    "{x} = {y} is {z}",
    "{x} = {y} == {z}",
    "{x} = type({y})",
    "{x} = isinstance({y}, {z})",
    "{x} = globals().get('{y}')",
    "for {x} in list({y}): pass",
)  # fmt: skip

PRELUDE = (
    "import functools, random, threading\nimport numpy as np\n"
    "from collections import Counter, OrderedDict, defaultdict, deque\nerrors = []\n"
    "class Bag(list): pass\n"
    "class Own:\n    def __init__(self, v): self.v = v\n"
    "    def __getstate__(self): return dict(self.__dict__)\n"
    "    def __setstate__(self, state): self.__dict__.update(state)\n"
    "random.seed(1)\nnp.random.seed(1)"
)

_name = st.sampled_from(NAMES)
_statement = st.builds(
    lambda text, x, y, z: text.format(x=x, y=y, z=z),
    st.sampled_from(STATEMENTS), _name, _name, _name,
)  # fmt: skip


def _cell(statements):
    """Each statement may fail, as in a notebook; that it did is part of the state."""
    lines = []
    for statement in statements:
        body = "\n".join("    " + line for line in statement.splitlines())
        lines.append(f"try:\n{body}\nexcept Exception as e:\n    errors.append(type(e).__name__)")
    return "\n".join(lines)


#: Lists of (on the GPU?, source).
cells = st.lists(
    st.tuples(st.booleans(), st.lists(_statement, min_size=1, max_size=3).map(_cell)),
    min_size=2,
    max_size=12,
)


__all__ = ["NAMES", "PRELUDE", "Counter", "OrderedDict", "cells"]


def plain(program, monkeypatch):
    """Return what is watched after a program in one process."""
    main = types.ModuleType("__main__")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "__main__", main)
        run(main.__dict__, PRELUDE)
        for _, source in program:
            run(main.__dict__, source)
        return picture(main.__dict__, WATCHED)
