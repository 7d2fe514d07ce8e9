"""What a cell may touch: too much is allowed, too little never."""

# ruff: noqa: E501 - one program a line

import builtins
import dis
import sys
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.sides.names.analysis import cell_use, code_use
from tests.helpers import draws

#: Source, names that must be among its reads, names that must be among its writes.
BOUNDED = {
    "plain": ("x = a + 1", "a", "x"),
    "augmented": ("a += b", "a b", "a"),
    "subscript": ("a[i] = b", "a i b", ""),
    "attribute": ("a.b.c = d", "a d", ""),
    "delete": ("del a, b[0]", "a b", "a"),
    "walrus": ("print(x := a)", "a", "x"),
    "unpacking": ("x, (y, *z) = a", "a", "x y z"),
    "annotation": ("x: A = a", "A a", "x"),
    "lambda default": ("f = lambda v=a: v + b", "a b", "f"),
    "default, annotation": ("def f(v: A = a, *, w=b) -> B: return c", "A a b B c", "f"),
    "decorator": ("@a\n@b.c(d)\ndef f(): pass", "a b d", "f"),
    "class": ("class C(A, metaclass=M):\n    v = a\n    def f(self): return b", "A M a b", "C"),
    "nested classes": ("class C:\n    class D(A):\n        v = a\n        def f(self): return b", "A a b", "C"),
    "comprehension": ("x = [f(i) for i in a if i in b for j in c]", "f a b c", "x"),
    "f-string": ("x = f'{a!r:>{w}} {b[c]}'", "a w b c", "x"),
    "words in strings": ("x = df.query('price > limit')", "df price limit", "x"),
    "match": ("match a:\n    case {'k': A(v), **rest}: x = b\n    case [p, *q] as r: pass", "a A b", "v rest p q r x"),
    "match value": ("match a:\n    case E.one | B.two: pass", "a E B", ""),
    "try": ("try: a\nexcept B as e: c\nelse: d\nfinally: f", "a B c d f", "e"),
    "try star": ("try: a\nexcept* B as e: c", "a B c", "e"),
    "with": ("with a as x, b(x) as y: c", "a b c", "x y"),
    "for": ("for i, j in a: b\nelse: c", "a b c", "i j"),
    "while": ("while a: b\nelse: c", "a b c", ""),
    "async": ("async def f():\n    async for i in a: await b\n    async with c: pass", "a b c", "f"),
    "await at the top": ("x = await a(b)", "a b", "x"),
    "global": ("def f():\n    global x\n    x = a", "a x", "x f"),
    "import": ("import a.b, c as d\nfrom e import f as g, h", "", "a d g h"),
    "from main": ("from a import b", "", "b"),
    "assert, raise": ("assert a, b\nraise c from d", "a b c d", ""),
    "slices": ("x = a[b:c, ..., d]", "a b c d", "x"),
    "conditional": ("x = a if b else c", "a b c", "x"),
    "magic line": ("%matplotlib inline\nx = a", "a", "x"),
    "shadowed builtin": ("x = sum(a)", "sum a", "x"),
    "yield": ("def f():\n    yield a\n    yield from b", "a b", "f"),
}  # fmt: skip

#: Source, names that it may have changed what they were bound to.
HANDLED = {
    "a.append(b)": "a b", "f(a)": "f a", "del a": "", "a = a[0] + b": "b", "a = f(a)": "f a",
    "a += b": "a b", "a[0] = b": "a b", "a = b = a": "", "for x in a: x.y = 1": "a x",
}  # fmt: skip


@pytest.mark.parametrize("source", HANDLED)
def test_what_may_have_been_changed_before_it_was_bound_anew(source):
    assert HANDLED[source].split() == [
        n for n in ("f", "a", "b", "x") if n in cell_use(source).handled
    ]


UNBOUNDED = (
    "eval(a)", "exec('x')", "globals()['x']", "vars()", "locals()", "dir()", "%who", "!ls {x}",
    "%%time\nx", "%run a.py", "get_ipython().run_cell('x')", "from os import *", "import __main__",
    "from __main__ import x", "import sys; sys.modules['__main__'].x", "f.__globals__['x']",
    "getattr(f, '__globals__')", "import sys; sys._getframe().f_globals", "ip.user_ns['x']",
    "def f(): return eval('1')", "[globals() for _ in a]", "def :", "x = (", "a b", "\x00",
    "import importlib; importlib.import_module('__main__')", "x?", "(lambda: globals)()",
)  # fmt: skip

STRICT = {
    "x = 1; y = x": "",
    "y = x; x = 1": "x",
    "x += 1": "x",
    "if c: x = 1\ny = x": "c x",
    "with open(p) as f: d = f.read()": "open p",
    "with open(p) as f: f.read()\nf.name": "open p",
    "for r in rows: print(r)": "rows print",
    "for r in rows: pass\nr": "rows r",
    "a, b = c\na + b": "c",
    "def f(): return 1\nf()": "",
    "import m\nm.x": "",
    "from m import f as g\ng()": "",
    "del x": "x",
    "x = [1]\nx[0] = y": "y",
    "'a word'": "",
    "df.query('price > 1')": "df",
    "with (x := a): x": "a x",
    "for x in x: x": "x",
    "try: x = f()\nfinally: x": "f x",
}


@pytest.mark.parametrize("case", BOUNDED)
def test_names_found(case):
    source, reads, writes = BOUNDED[case]
    use = cell_use(source)
    assert use.reads >= set(reads.split())
    assert use.writes >= set(writes.split())
    assert use.changes >= use.writes
    assert use.unbounded == (source.startswith("%"))


@pytest.mark.parametrize("source", UNBOUNDED)
def test_what_may_touch_any_name(source):
    assert cell_use(source).unbounded


@pytest.mark.parametrize("source", STRICT)
def test_names_that_must_be_there(source):
    assert cell_use(source).strict == set(STRICT[source].split())


@pytest.mark.parametrize("body", ["eval('x')", "globals()", "f.__globals__", "sys.modules['__main__']",
                                  "__import__('__main__')", "[exec(s) for s in t]"])  # fmt: skip
def test_functions_that_may_touch_any_name(body):
    space = {}
    exec(f"def f(): return {body}", space)
    assert code_use(space["f"].__code__).unbounded


def test_a_function_that_imports_the_notebook():
    space = {}
    exec("def f():\n    import __main__ as m\n    return m.x", space)
    assert code_use(space["f"].__code__).unbounded


def test_global_names_of_nested_code():
    space = {}
    source = (
        "def f(p):\n    global w\n    w = a\n    class C(B): v = [c for i in d]\n"
        "    return lambda: e(p, 'spoken word')"
    )
    exec(source, space)
    use = code_use(space["f"].__code__)
    assert use.reads >= {"w", "a", "B", "c", "d", "e", "spoken", "word"}
    assert use.writes == {"w"}
    assert "p" not in use.reads


NAMES = ("a", "b", "c", "d", "e")
_name = st.sampled_from(NAMES)
_expression = st.recursive(
    _name | st.just("1"),
    lambda inner: st.one_of(
        st.builds("({} + {})".format, inner, inner),
        st.builds("[{} for {} in [{}]]".format, inner, _name, inner),
        st.builds("(lambda {}={}: {})()".format, _name, inner, inner),
        st.builds("f'{{{}}}'".format, _name),
        st.builds("({} := {})".format, _name, inner),
        st.builds("eval('{}')".format, _name),
        st.builds("({} if {} else {})".format, inner, inner, inner),
    ),
    max_leaves=5,
)
_line = st.one_of(
    st.builds("{} = {}".format, _name, _expression),
    st.builds("{} += {}".format, _name, _expression),
    st.builds("del {}".format, _name),
    st.builds("def f({}={}): return {}\nf()".format, _name, _expression, _name),
    st.builds("class K:\n    {} = {}\n    v = {}".format, _name, _expression, _name),
    st.builds("for {} in [{}]: {} = {}".format, _name, _name, _name, _name),
    st.builds("def g():\n    global {0}\n    {0} = {1}\ng()".format, _name, _name),
    st.builds("match {}:\n    case {}: {} = 1".format, _name, _name, _name),
    st.builds("try: raise ValueError\nexcept ValueError as {}: {} = 1".format, _name, _name),
    _expression,
)


class Traced(dict):
    """A namespace that notes which names are asked for, at the top and in functions."""

    def __init__(self):
        super().__init__(dict.fromkeys(NAMES, 1))
        self.asked = set()
        self.bound = set()

    def __setitem__(self, key, value):
        self.bound.add(key)
        super().__setitem__(key, value)

    def __getitem__(self, key):
        self.asked.add(key)
        return super().__getitem__(key)

    def __delitem__(self, key):
        if key not in self.bound:  # else it is the cell's own
            self.asked.add(key)
        super().__delitem__(key)


@settings(max_examples=draws(60))
@given(st.lists(_line, min_size=1, max_size=4))
def test_every_name_really_read_is_found(lines):
    source = "\n".join(lines)
    try:
        code = compile(source, "<cell>", "exec")
    except SyntaxError:
        return
    space = Traced()
    first = dict(space)
    ended = []
    missing = set()

    class Builtins(dict):
        def __missing__(self, key):
            missing.add(key)
            raise KeyError(key)

    # Functions look globals up past a subclass: what they read shows as missing when it is not there.
    use = cell_use(source)
    for absent in (None, *NAMES):
        space = Traced()
        space.update(first)
        if absent is not None:
            dict.pop(space, absent)
        dict.__setitem__(space, "__builtins__", Builtins(vars(builtins)))
        try:
            exec(code, space, space)
        except Exception as error:
            ended.append(error)  # what it read until then counts
        read = (space.asked | missing) & set(NAMES)
        assert use.unbounded or read <= use.reads, (source, read - use.reads)


def test_the_namespace_of_a_function_is_known_by_code_too():
    main = types.ModuleType("cells")
    exec("def f(): return later\ndef g(): return f()", main.__dict__)
    assert code_use(main.g.__code__).reads == {"f"}
    assert sys.modules.get("cells") is None


#: Programs without strings, in which a name ``f`` belongs to a scope of its own.
SCOPES = (
    "x = [f for f in a]",
    "x = {f: g for f, g in a if f}",
    "x = sum(f for f in f.b)",
    "x = lambda f, *g, k=f: f + a",
    "def h(f):\n    return f + a",
    "def h():\n    f = a\n    return [f for _ in b]",
    "def h():\n    with a as f:\n        return f",
    "def h():\n    for f in a: pass\n    return lambda: f + b",
    "def h():\n    global f\n    f = a\n    return f",
    "def h():\n    f = a\n    def i():\n        nonlocal f\n        f = b\n        return f\n    return i",
    "def h():\n    import f.g as i, f\n    return f, i",
    "def h():\n    try: a\n    except b as f: return f",
    "def h():\n    match a:\n        case [f, *g]: return f, g",
    "def h():\n    return [(f := i) for i in a] and f",
    "def h():\n    def f(): return a\n    class g(f): pass\n    return f, g",
    "async def h():\n    async for f in a: await f",
    "class h:\n    f = a\n    g = f\n    def i(self): return f",
    "class h:\n    f = [f for f in a]",
    "@f\ndef h(g: f = f) -> f: return g",
)


_LOADS = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}


def _globals_read(code):
    found = {each.argval for each in dis.get_instructions(code) if each.opname in _LOADS}
    inside = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return found.union(*map(_globals_read, inside))


@pytest.mark.parametrize("source", SCOPES)
def test_scopes_are_the_compilers(source):
    expected = _globals_read(compile(source, "cell", "exec"))
    assert cell_use(source).reads == expected - {"__name__"}


@pytest.mark.parametrize(
    "source",
    [
        "x = [f for f in a]",
        "if a:\n    with b as f:\n        f.read()",
        "try:\n    f = a\n    f.read()\nexcept b as f:\n    f",
        "while a:\n    f = b\n    f",
        "for f in a:\n    if f:\n        g = f\n        g",
    ],
)
def test_what_a_block_binds_itself_is_not_needed_from_before(source):
    assert cell_use(source).strict <= {"a", "b"}


@pytest.mark.parametrize(
    "source",
    [
        "if a:\n    f = b\nf",
        "try:\n    f = a\nexcept b:\n    pass\nf",
        "while a:\n    f = b\nf",
        "if a:\n    f\n    f = b",
    ],
)
def test_what_may_not_have_been_bound_is_needed(source):
    assert "f" in cell_use(source).strict
