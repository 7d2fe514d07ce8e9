"""Random notebook programs, and what a namespace looks like from inside.

`cells` draws cells of plain statements over a few names; `picture` shows values together with
who is who, so that two runs can be compared across processes.
"""

import functools
import types
from collections import Counter, OrderedDict, defaultdict, deque

from hypothesis import strategies as st

NAMES = ("a", "b", "c", "d")

STATEMENTS = (
    "{x} = []",
    "{x} = {{}}",
    "{x} = [1, 2.5, 'text', None]",
    "{x} = {y}",
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
    "class {x}:\n    items = []\n    def put(self, v=1): self.items.append(v); return self",
    "class {x}:\n    def __init__(self): self.v = {y}\n    def get(self): return self.v",
    "{x}.items = [{y}]",
    "del {x}.items",
    "{x} = {y}.get()",
    "{x} = {y}().put()",
    "{x}.v = {y}",
    "{x} = functools.partial({y}, {z})",
    "{x} = defaultdict(list)",
    "{x}['q'].append({y})",
    "{x} = deque([{y}, 1], maxlen=3)",
    "{x} = Counter('abca')",
    "{x} = object()",
    "{x} = [float('nan')] * 2",
    "{x} = ValueError({y})",
    "{x}.__cause__ = ValueError(1)",
    "{x} = iter({y})",
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
    "import functools, random\nimport numpy as np\n"
    "from collections import Counter, OrderedDict, defaultdict, deque\nerrors = []\n"
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


#: Lists of (beside the GPU?, source).
cells = st.lists(
    st.tuples(st.booleans(), st.lists(_statement, min_size=1, max_size=3).map(_cell)),
    min_size=2,
    max_size=12,
)


def picture(space, names):
    """Return a printable form of these names' values, with identities numbered by first sight."""
    seen = {}
    keep = []

    def show(value):
        numpy = type(value).__module__ == "numpy"
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return f"{type(value).__name__} {value!r}"
        if numpy and type(value).__name__ != "ndarray":
            return repr(value)
        if isinstance(value, type) and value.__module__ != "__main__":
            return repr(value)
        if isinstance(value, types.ModuleType | types.BuiltinFunctionType | type(len)):
            return getattr(value, "__name__", "builtin")
        if isinstance(value, tuple):
            return "(" + ", ".join(show(v) for v in value) + ")"
        if id(value) in seen:
            return f"#{seen[id(value)]}"
        number = seen[id(value)] = len(seen)
        keep.append(value)
        return f"#{number}={inside(value)}"

    def inside(value):
        if type(value).__name__ == "ndarray":
            address = value.__array_interface__["data"][0]
            base = seen.setdefault(("base", *root(value)), address)
            return f"array {value.dtype} {value.shape} {value.tolist()} at {address - base}"
        if isinstance(value, list | deque):
            return type(value).__name__ + "[" + ", ".join(show(v) for v in value) + "]"
        if isinstance(value, set | frozenset):
            return "{" + ", ".join(sorted(show(v) for v in value)) + "}"
        if isinstance(value, bytearray):
            return repr(value)
        if isinstance(value, dict):
            extra = show(value.default_factory) if isinstance(value, defaultdict) else ""
            items = ", ".join(f"{show(k)}: {show(v)}" for k, v in dict.items(value))
            return f"{type(value).__name__} {extra} {{{items}}}"
        if isinstance(value, types.FunctionType):
            cells = [show_cell(cell) for cell in value.__closure__ or ()]
            return (f"function {value.__qualname__} {show(value.__defaults__)} {cells} "
                    f"{show(value.__dict__)}")  # fmt: skip
        if isinstance(value, type):
            inner = {k: v for k, v in vars(value).items() if not k.startswith("__")}
            return f"class {value.__name__} " + ", ".join(
                f"{k}: {show(v)}" for k, v in sorted(inner.items())
            )
        if isinstance(value, functools.partial):
            return f"partial {show(value.func)} {show(value.args)}"
        if isinstance(value, BaseException):
            return f"{type(value).__name__} {show(value.args)} {show(value.__cause__)}"
        if isinstance(value, types.MethodType):
            return f"method {show(value.__func__)} {show(value.__self__)}"
        if hasattr(value, "__next__"):
            try:
                over = value.__reduce__()[1][0]
            except RuntimeError:
                return "iterator over a set that changed"
            if type(over) in (list, tuple) and not over:
                return "iterator at its end"  # travels as a fresh one over nothing: the same
            return f"iterator {show(value.__reduce__()[1])} {value.__reduce__()[2:]}"
        space = getattr(value, "__dict__", None)
        kind = show(type(value)) if isinstance(type(value), type) else ""
        return f"object {kind} " + (show(dict(space)) if space is not None else "")

    def root(array):
        import numpy as np

        for name, low, high in spans:
            at = np.lib.array_utils.byte_bounds(array)
            if at[0] < high and low < at[1]:
                return (name,)
        return (id(array),)

    def show_cell(cell):
        try:
            return show_identity(cell, show(cell.cell_contents))
        except ValueError:
            return "empty"

    def show_identity(cell, text):
        number = seen.setdefault(("cell", id(cell)), len(seen))
        return f"cell{number} {text}"

    spans = memory_spans(space, names)
    return [f"{name} = {show(space[name])}" for name in names if name in space]


def memory_spans(space, names):
    """Return the memory that arrays bound to names cover, joined where they overlap."""
    import numpy as np

    spans = sorted(
        np.lib.array_utils.byte_bounds(space[name])
        for name in names
        if type(space.get(name)).__name__ == "ndarray"
    )
    joined = []
    for low, high in spans:
        if joined and low < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return [(index, low, high) for index, (low, high) in enumerate(joined)]


__all__ = ["NAMES", "PRELUDE", "Counter", "OrderedDict", "cells", "picture"]
