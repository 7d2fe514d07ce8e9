"""Functions, classes and scopes of the notebook, made on one side and changed on the other."""

# ruff: noqa: E501, RUF001 - one notebook a line

import sys

from tests.transfer.kinds import Kind, each_group, same_as_plain

KINDS = {
    "function": Kind("def x(a, b=[], *c, d=1, **e):\n    'doc'\n    b.append(a); return (a, list(b), c, d, e)",
                     "x.calls = getattr(x, 'calls', 0) + 1", "(x(1), x(2, d=3, q=4), x.__doc__, x.__dict__)"),
    "defaults changed": Kind("def x(a=1): return a", "x.__defaults__ = (x() + 1,)", "x()"),
    "kwdefaults changed": Kind("def x(*, a=1): return a", "x.__kwdefaults__['a'] += 1", "x()"),
    "annotations": Kind("def x(a: int, b: 'str' = '') -> list[int]: return []", "x.__annotations__['c'] = float", "x.__annotations__"),
    "lambda": Kind("k = 3\nx = lambda v=2: v * k", "k += 1", "x()"),
    "function redefined": Kind("def x(): return 1", "def x(old=x): return 1 + old()", "x()", same=False),
    "code replaced": Kind("def x(): return 1\ndef z(): return 2", "x.__code__, z.__code__ = z.__code__, x.__code__", "(x(), z())"),
    "closure": Kind("def make():\n    l = []\n    def add(): l.append(len(l)); return list(l)\n    return add\nx = make()",
                    "x()", "x()"),
    "two closures over one cell": Kind(
        "def make():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n    def get(): return n\n    return up, get\n"
        "x, get = make()", "x()", "get()"),
    "closure over itself": Kind("def make():\n    def f(n): return 1 if n < 2 else n * f(n - 1)\n    return f\nx = make()", "pass", "x(6)"),
    "empty cell": Kind(
        "def make():\n    def f():\n        try: return v\n        except NameError: return 'empty'\n    def fill():\n        nonlocal v\n        v = 1\n"
        "    if 0: v = 2\n    return f, fill\nx, fill = make()", "fill()", "x()"),
    "loop closures": Kind("x = [lambda: i for i in range(3)]\nj = 5\nx.append(lambda: j)", "j += 1", "[f() for f in x]"),
    "wraps": Kind(
        "import functools\ndef deco(f):\n    @functools.wraps(f)\n    def inner(*a):\n        inner.n += 1\n        return f(*a)\n    inner.n = 0\n    return inner\n"
        "@deco\ndef x(a): return a", "x(1)", "(x(2), x.n, x.__name__, x.__wrapped__(3))"),
    "decorator with arguments": Kind(
        "def times(n):\n    def deco(f): return lambda v: [f(v)] * n\n    return deco\n@times(2)\ndef x(v): return v", "x.t = 1", "x(1)"),
    "class decorator": Kind(
        "def reg(cls): R.append(cls.__name__); return cls\nR = []\n@reg\nclass C: pass\nx = C()", "@reg\nclass D(C): pass\nx.d = len(R)", "(R, x.d if hasattr(x, 'd') else 0)"),
    "class as decorator": Kind(
        "class Count:\n    def __init__(self, f): self.f = f; self.n = 0\n    def __call__(self, *a): self.n += 1; return self.f(*a)\n@Count\ndef x(v): return v",
        "x(1)", "(x(2), x.n)"),
    "lru_cache": Kind("import functools\n@functools.lru_cache\ndef x(n): return n if n < 2 else x(n - 1) + x(n - 2)", "x(len(x.__dict__)); x.cache_info()", "(x(30), x.cache_info())"),
    "lru_cache whose results are held": Kind(
        "import functools\n@functools.cache\ndef x(n, *, k=0): calls.append(n); return [n, k]\ncalls = []\nv = x(1)",
        "x(2, k=3).append(0); x(1).append(len(calls))", "(x(1), x(2, k=3), x(1) is v, calls, x.cache_info())"),
    "lru_cache that forgets": Kind(
        "import functools\n@functools.lru_cache(maxsize=2, typed=True)\ndef x(*a, **k): calls.append((a, k)); return 1 / a[0]\ncalls = []\nx(1); x(2, b=3)",
        "x(1); x(1.0); x(len(calls))\ntry: x(0)\nexcept ZeroDivisionError: pass", "(x(1), x(1.0), x(2, b=3), calls, x.cache_info())"),
    "lru_cache cleared": Kind("import functools\n@functools.cache\ndef x(n): return [n]\nx(1)", "x.cache_clear(); x.note = x(2); x.__wrapped__.n = 1", "(x.cache_info(), x.note is x(2) if hasattr(x, 'note') else 0)"),
    "lru_cache of a method": Kind(
        "import functools\nclass C:\n    def __init__(self): self.n = 0\n    @functools.cache\n    def get(self, k): self.n += 1; return [k, self.n]\n    @staticmethod\n    @functools.lru_cache(4)\n    def s(k): return {k}\nx = C(); x.get(1)",
        "x.get(2); x.get(1).append(1); C.s(1)", "(x.get(1), x.get(2), x.n, C.get.cache_info(), C.s(1), C.s.cache_info())"),
    "lru_cache in a closure": Kind(
        "import functools\ndef make(k):\n    @functools.cache\n    def f(n): return [n, k, len(k)]\n    return f\nk = []\nx = make(k); x(1)\nl = [x]", "k.append(1); l[0](len(k))", "(x(1), x(2), x(1)[1] is k, l[0] is x, x.cache_info())"),
    "lru_cache by data classes": Kind(
        "import dataclasses, functools\n@dataclasses.dataclass(frozen=True)\nclass P: a: int\n@functools.cache\ndef x(p): return [p]\nx(P(1))", "x(P(2))", "(x(P(1)), x(P(2)), x.cache_info())"),
    "partial": Kind("import functools\ndef f(a, b, c=0): return (a, b, c)\nx = functools.partial(f, 1, c=[2])", "x.keywords['c'].append(3)", "x(5)"),
    "partial of a partial": Kind("import functools\nx = functools.partial(int, base=3)", "x = functools.partial(x)", "(x.func, x.keywords, x('11'))"),
    "a new type": Kind("import typing\nx = typing.NewType('x', list)\ndef f(v: x) -> x: return v", "x.note = 1", "(x.__name__, x.__supertype__, f.__annotations__['v'] is x, x([1]), vars(x).get('note'))"),
    "partialmethod": Kind(
        "import functools\nclass C:\n    def put(self, a, b): self.v = (a, b)\n    one = functools.partialmethod(put, 1)\nx = C()", "x.one(2)", "getattr(x, 'v', None)"),
    "recursion": Kind("def x(n): return 1 if n == 0 else n * x(n - 1)", "x.n = 1", "x(10)"),
    "mutual recursion": Kind("def x(n): return True if n == 0 else odd(n - 1)\ndef odd(n): return False if n == 0 else x(n - 1)",
                             "x.n = 1", "(x(10), odd(10))"),
    "helper defined later": Kind("def x(): return helper()\ndef helper(): return 1", "def helper(old=helper): return old() + 1", "x()"),
    "global in function": Kind("n = 0\ndef x():\n    global n, fresh\n    n += 1\n    fresh = [n]\n    return n", "x()", "(x(), n, fresh)"),
    "global deleted in function": Kind("n = 0\ndef x():\n    global n\n    del n", "x(); n = 4", "n"),
    "generator function": Kind("def x(n):\n    for i in range(n): yield i", "x.n = 1", "list(x(3))"),
    "async function": Kind("async def x(n): return n", "x.n = 1", "x.__name__"),
    "instance": Kind("class C:\n    def __init__(self): self.v = []\nx = C()", "x.v.append(1); x.me = x", "(x.v, hasattr(x, 'me') and x.me is x)"),
    "attribute deleted": Kind("class C: pass\nx = C(); x.a = 1; x.n = 0", "x.__dict__.pop('a', 0); x.n += 1", "sorted(vars(x).items())"),
    "class attribute changed": Kind("class C:\n    n = 0\n    items = []\nx = C()", "C.n += 1; C.items.append(C.n)", "(x.n, x.items, type(x) is C)"),
    "class attribute deleted": Kind("class C:\n    a = 1\nx = C()", "if 'a' in vars(C): del C.a\nelse: C.a = 2", "getattr(x, 'a', None)"),
    "method added later": Kind("class C: pass\nx = C()", "C.get = lambda self, n=getattr(C, 'n', 0): n\nC.n = getattr(C, 'n', 0) + 1",
                               "(hasattr(x, 'get') and x.get(), getattr(x, 'n', 0))"),
    "class made anew": Kind("class C: v = 1\nx = C()", "class C: v = 2\nz = C()", "(x.v, type(x) is C, isinstance(x, C))"),
    "inheritance": Kind(
        "class A:\n    def __init__(self): self.l = [0]\n    def up(self): self.l.append(1)\nclass B(A):\n    def up(self): super().up(); self.l.append(2)\n"
        "class M: pass\nclass C(B, M): pass\nx = C()", "x.up()", "(x.l, [c.__name__ for c in C.__mro__], isinstance(x, A), type(x).__mro__[1] is B)"),
    "base changed": Kind("class A: v = 1\nclass B(A): pass\nx = B()", "A.v += 1", "(x.v, B.v, B.__base__ is A)"),
    "asked for its subclasses": Kind("import abc\nclass B(abc.ABC):\n    @classmethod\n    def known(cls): return sorted(c.__name__ for c in cls.__subclasses__())\nclass P: pass\nclass x(B): pass\nclass Other(B): pass\nclass Q(P): pass\nasks = '__subclasses__'",
                                     "x.n = getattr(x, 'n', 0) + 1", "(B.known(), [c.__name__ for c in P.__subclasses__()], len(getattr(B, asks)()))"),
    "builtin base": Kind("class E(KeyError): pass\nx = E('a')", "x.n = getattr(x, 'n', 0) + 1", "(x.args, x.n if hasattr(x, 'n') else 0, isinstance(x, E))"),
    "metaclass": Kind("class Meta(type):\n    made = []\n    def __new__(m, n, b, d): c = super().__new__(m, n, b, d); m.made.append(n); return c\n"
                      "    def size(cls): return len(cls.made)\nclass C(metaclass=Meta): pass\nx = C()",
                      "x.n = getattr(x, 'n', 0) + 1", "(C.size(), type(C) is Meta, Meta.made)"),
    "metaclass with properties": Kind("class Meta(type):\n    @property\n    def nargs(cls): return cls._n\n    @property\n    def rate(cls): return cls._rate\n    @rate.setter\n    def rate(cls, v): sets.append(v); cls._rate = v\nsets = []\nclass x(metaclass=Meta):\n    nargs = 1\n    rate = (2, 'a')\n    _n = 5",
                                     "x._n += 1; x.rate = len(sets)", "(x.nargs, x().nargs, x().rate, x.rate if sets else None, sets)"),
    "init_subclass": Kind("class R:\n    known = []\n    def __init_subclass__(cls, **k): R.known.append(cls.__name__)\nclass A(R): pass\nx = A()",
                          "x.n = 1", "(R.known, x.known is R.known)"),
    "init_subclass under slots and built-in classes": Kind(
        "known = []\nclass M:\n    __slots__ = ()\n    def __init_subclass__(cls, **k): known.append(cls.__name__)\nclass R(M): __slots__ = ('__a',)\nclass S(R): __slots__ = ('b', '__weakref__')\nclass L(S): pass\nclass D(dict, M): pass\nclass E(M, Exception): __slots__ = ()\nx = [L(), D(), E('e')]",
        "x[0].b = getattr(x[0], 'b', 0) + 1; x[1]['n'] = known[0]", "(known, getattr(x[0], 'b', 0), x[1], x[2].args, [c.__bases__ for c in (S, L, D, E)] == [(R,), (S,), (dict, M), (M, Exception)])"),
    "set_name descriptor": Kind(
        "class D:\n    def __set_name__(self, o, n): self.n = '_' + n; calls.append(n)\n    def __get__(self, i, o): return self if i is None else i.__dict__.get(self.n, 0)\n"
        "    def __set__(self, i, v): i.__dict__[self.n] = v\ncalls = []\nclass C:\n    v = D()\nx = C()", "x.v += 1", "(x.v, calls, x.__dict__)"),
    "property": Kind("class C:\n    def __init__(self): self._v = 1\n    @property\n    def v(self): 'doc'; return self._v\n    @v.setter\n    def v(self, n): self._v = n * 2\nx = C()",
                     "x.v = x.v", "(x.v, C.v.fset is not None)"),
    "static and class methods": Kind("class C:\n    n = 0\n    @staticmethod\n    def s(a): return a\n    @classmethod\n    def c(cls): cls.n += 1; return cls.n\nx = C()",
                                     "x.c()", "(x.s(1), x.c(), C.n)"),
    "static methods over a module's function": Kind(
        "import textwrap\nclass C: s = staticmethod(textwrap.dedent)\nx = D = C",
        "class D: s = staticmethod(textwrap.dedent)",
        "(vars(C)['s'].__annotations__ is vars(D)['s'].__annotations__, D.s(' a'), C is D)"),
    "slots": Kind("class C:\n    __slots__ = ('a', 'b', '__weakref__')\nx = C(); x.a = [1]", "x.a.append(2); x.b = x", "(x.a, hasattr(x, 'b') and x.b is x)"),
    "slots and dict": Kind("class B:\n    __slots__ = ('a',)\nclass C(B): pass\nx = C(); x.a = 1; x.z = [1]", "x.a += 1; x.z.append(2)", "(x.a, x.z)"),
    "private slots": Kind("class C:\n    __slots__ = ('__a',)\n    def __init__(self): self.__a = 1\n    def up(self): self.__a += 1; return self.__a\nx = C()", "x.up()", "x.up()"),
    "dataclass": Kind("from dataclasses import dataclass, field, asdict, replace\n@dataclass\nclass D:\n    a: int = 1\n    b: list = field(default_factory=list)\nx = D()",
                      "x.b.append(x.a); x.a += 1", "(x, asdict(x), x == D(x.a, x.b), repr(replace(x, a=9)))"),
    "dataclass with slots": Kind("from dataclasses import dataclass\n@dataclass(slots=True)\nclass D:\n    a: int = 1\n    b: object = None\nx = D()", "x.a += 1; x.b = [1]", "repr(x)"),
    "frozen dataclass": Kind("from dataclasses import dataclass, replace\n@dataclass(frozen=True, order=True)\nclass D:\n    a: int = 1\nx = D()", "x = replace(x, a=x.a + 1)", "(x, hash(x) == hash(D(x.a)), {x: 1}[D(x.a)])", same=False),
    "frozen slots dataclass": Kind("from dataclasses import dataclass, replace\n@dataclass(frozen=True, slots=True)\nclass D:\n    a: int = 1\n    b: tuple = ()\nx = D()", "x = replace(x, a=x.a + 1)", "(x, {x: 1}[D(x.a)])", same=False),
    "dataclass inheritance": Kind("from dataclasses import dataclass\n@dataclass\nclass A:\n    a: int = 1\n@dataclass\nclass B(A):\n    b: int = 2\n    def __post_init__(self): self.c = self.a\nx = B()", "x.b += 1", "(x, x.c)"),
    "abstract class": Kind("import abc\nclass A(abc.ABC):\n    @abc.abstractmethod\n    def f(self): ...\nclass B(A):\n    def f(self): return 1\nA.register(int)\nx = B()",
                           "x.n = getattr(x, 'n', 0) + 1", "(x.f(), isinstance(x, A), A.__abstractmethods__)"),
    "registered with abstract classes of modules": Kind("from collections.abc import Mapping, MutableMapping, Sequence\nimport numbers\nclass x:\n    def __len__(self): return 2\n    def __getitem__(self, i): return (1, 2)[i]\nclass N: pass\nSequence.register(x); n = [0]\ndef kind(v):\n    match v:\n        case [a, b]: return 'two'\n        case {**k}: return 'map'",
                            "n[0] += 1; MutableMapping.register(N)\nif n[0] > 1: numbers.Number.register(x)", "(isinstance(x(), Sequence), kind(x()), isinstance(N(), Mapping), isinstance(x(), numbers.Number), isinstance(N(), Sequence))"),
    "protocol and generic": Kind("from typing import Generic, TypeVar, Protocol\nT = TypeVar('T')\nclass G(Generic[T]):\n    def __init__(self, v: T): self.v = v\nx = G[list]([1])", "x.v.append(2)", "(x.v, G.__parameters__[0] is T)"),
    "generic classes that others hold": Kind(
        "from dataclasses import dataclass, field\nfrom typing import Generic, ParamSpec, Protocol, TypedDict, TypeVar, TypeVarTuple, Unpack\nT = TypeVar('T'); Q = ParamSpec('Q'); Ts = TypeVarTuple('Ts')\nclass Z(Generic[T]): pass\nclass C(Generic[Q, Unpack[Ts]]): pass\nclass P(Protocol[T]): pass\nclass D(TypedDict, Generic[T]): pass\n"
        "@dataclass\nclass A:\n    z: Z[int] = field(default_factory=Z[int])\n    def f(self, other: P[str]) -> Z[Z[int]]: ...\nA.held = [C[[int], str, bytes], D[int], P[int]]\nZ.held = Z[A]\nx = A()",
        "x.z.n = getattr(x.z, 'n', 0) + 1",
        "(x.z.__orig_class__ == Z[int], A.__annotations__, A.f.__annotations__, A.held, Z.held.__args__[0] is A, Z.__parameters__[0] is T, C.__parameters__)"),
    "generic classes under generic ones": Kind(
        "from abc import ABC\nfrom typing import Generic, TypeVar\nT = TypeVar('T'); U = TypeVar('U'); known = []\nclass H(ABC, Generic[T]):\n    def __init_subclass__(cls, **k): super().__init_subclass__(**k); known.append(cls.__name__)\nclass A(H[int]): pass\nclass B(H[T], Generic[T, U]):\n    __slots__ = ('v',)\nclass C(B[U, int]): pass\nx = C()",
        "x.v = getattr(x, 'v', 0) + 1", "(known, getattr(x, 'v', 0), C.__parameters__ == (U,), B.__orig_bases__ == (H[T], Generic[T, U]), [c.__name__ for c in C.__mro__], A.__bases__ == (H,))"),
    "TypedDict": Kind("from typing import TypedDict\nclass D(TypedDict):\n    a: int\nx = D(a=1)", "x['a'] += 1", "(x, sorted(D.__annotations__))"),
    "nested class": Kind("class O:\n    class I:\n        v = [1]\nx = O.I()", "O.I.v.append(2)", "(x.v, type(x) is O.I, O.I.__qualname__)"),
    "local class": Kind("def make():\n    n = [0]\n    class L:\n        def up(self): n[0] += 1; return n[0]\n    return L\nL = make()\nx = L()", "x.up()", "(x.up(), type(x) is L)"),
    "class with super cell": Kind("class A:\n    def f(self): return __class__.__name__\nx = A()", "x.n = 1", "x.f()"),
    "bound method": Kind("class C:\n    n = 0\n    def up(self): self.n += 1; return self.n\nc = C()\nx = c.up", "x()", "(x(), c.n, x.__self__ is c)", same=False),
    "bound builtin method": Kind("l = [1]\nx = l.append", "x(2)", "(l, x.__self__ is l)", same=False),
    "singleton by new": Kind("class S:\n    one = None\n    def __new__(cls):\n        if cls.one is None: cls.one = super().__new__(cls)\n        return cls.one\nx = S()",
                             "x.n = getattr(x, 'n', 0) + 1", "(S() is x, x.n if hasattr(x, 'n') else 0)"),
    "own getattr": Kind("class C:\n    def __init__(self): self.d = {'a': 1}\n    def __getattr__(self, n):\n        try: return self.__dict__['d'][n]\n        except KeyError: raise AttributeError(n)\nx = C()", "x.d['b'] = x.a", "(x.a, x.d)"),
    "getattr that cannot say no": Kind(
        "class D:\n    def __init__(self): self.d = {'a': [1]}\n    def __getattr__(self, n): return self.d[n]\nclass A(dict):\n    __getattr__ = dict.__getitem__\n    __setattr__ = dict.__setitem__\n"
        "class S:\n    __slots__ = ('o', 'late')\n    def __init__(self, o): self.o = o\n    def __getattr__(self, n): return self.o[n]\nclass P:\n    def __init__(self, o): self._o = o\n    def __getattr__(self, n): return getattr(self._o, n)\n"
        "x = [D(), A(b=2), S({'c': 3}), P(R := [])]", "x[0].a.append(2); x[1].b += 1; x[2].o['c'] += 1; x[3].append(len(R))", "(x[0].a, x[1].b, x[2].c, x[3]._o, x[3]._o is R)"),
    "tuple made of something else": Kind(
        "class T(tuple):\n    def __new__(cls, a, b): return super().__new__(cls, [[a], b])\nx = T(1, 2); x.note = 'n'", "x[0].append(len(x)); x.note += 'n'", "(x, x.note, type(x) is T)"),
    "mocks": Kind(
        "from unittest import mock\nn = [1]\nx = mock.MagicMock(name='m'); x.a.return_value = n; s = mock.Mock(spec=['fit'])",
        "x.a(len(n)).append(len(x)); s.fit(n)", "(x.a.call_count, x.a() is n, n, s.fit.call_args[0][0] is n if s.fit.called else None, x.mock_calls[-1:] == [mock.call.a()])"),
    "own setattr": Kind("class C:\n    def __setattr__(self, n, v): object.__setattr__(self, n, v + 1)\nx = C(); x.a = 1", "x.a = x.a", "x.a"),
    "own getstate": Kind("class C:\n    def __init__(self): self.a = [1]; self.cache = 5\n    def __getstate__(self): return {'a': self.a, 'cache': self.cache}\n    def __setstate__(self, s): self.__dict__.update(s)\nx = C()", "x.a.append(2); x.cache += 1", "(x.a, x.cache)"),
    "own reduce": Kind("class C:\n    def __init__(self, a): self.a = a\n    def __reduce__(self): return (C, (self.a,))\nx = C([1])", "x.a.append(2)", "x.a"),
    "own eq without hash": Kind("class C:\n    def __init__(self): self.v = 1\n    def __eq__(self, o): return self.v == o.v\nx = C()", "x.v += 1", "(x.v, C.__hash__)"),
    "bool that raises": Kind("class C:\n    v = 0\n    def __bool__(self): raise ValueError\n    def __eq__(self, o): raise ValueError\n    __hash__ = None\nx = C()", "x.v += 1", "x.v"),
    "context manager": Kind("import contextlib\n@contextlib.contextmanager\ndef x(l):\n    l.append(1); yield l; l.append(2)", "x.n = 1", "(lambda l: (x(l).__enter__(), l))([])"),
    "context manager class": Kind("class CM:\n    log = []\n    def __enter__(self): self.log.append('in'); return self\n    def __exit__(self, *a): self.log.append('out')\nx = CM()", "with x: pass", "x.log"),
    "iterator class": Kind("class I:\n    def __init__(self): self.i = 0\n    def __iter__(self): return self\n    def __next__(self): self.i += 1; return self.i\nx = I()", "next(x)", "next(x)"),
    "class variable instance of itself": Kind("class C: pass\nC.default = C()\nx = C.default", "C.default.n = getattr(x, 'n', 0) + 1", "(x is C.default, getattr(x, 'n', 0))"),
    "names that shadow builtins": Kind("x = [1]\nsum = lambda v: 'mine'\nlist = 5\nid = [7]", "x.append(sum(x)); id.append(list)", "(x, sum(x), list, id)"),
    "shadow taken away": Kind("x = [1]\nlen = lambda v: -1", "x.append(len(x))\nif 'len' in globals(): del len\nelse: len = lambda v: -2", "(x, len(x))", alone=True),
    "underscored names": Kind("_x = [1]\n__x = [2]\n_private_ = 3\nx = _x", "_x.append(1); __x.append(2); _private_ += 1", "(_x, __x, _private_)"),
    "unicode names": Kind("größe = [1]\nx = größe\nℌ = 4", "größe.append(2)", "(größe, H)", alone=True),
    "del and make anew": Kind("x = [1]\nz = 1", "if 'z' in globals(): del z\nelse: z = 2", "('z' in globals(), globals().get('z'))"),
    "rebinding leaves the alias": Kind("x = [1]\nw = x", "x = x + [2]; y = x; box['in'][0] = x", "(x, w)"),
    "swap": Kind("x = [1]\nw = [2]", "w.append(x[0]); x, w = w, x; y = x; box['in'][0] = x", "(x, w)"),
    "alias made away": Kind("x = [1]\nw = [1]", "w = x", "(x is w, x == w)"),
    "alias undone away": Kind("x = [1]\nw = x", "w = list(x)", "(x is w, x == w)"),
    "star import": Kind("x = [1]\nfrom math import *", "x.append(floor(pi))", "(x, ceil(e))"),
    "from import as": Kind("from os.path import join as j\nimport os.path, collections.abc as cabc\nx = [j('a', 'b')]", "x.append(j('c', cabc.__name__))", "(x, os.sep)"),
    "import made and deleted": Kind("import string\nx = [1]", "if 'string' in globals(): x.append(string.digits); del string", "'string' in globals()"),
    "walrus": Kind("x = [(w := 3), w]", "x.append(w := w + 1)", "(x, w)"),
    "walrus in comprehension": Kind("x = [last := i for i in range(3)]", "x += [last := last + i for i in x[:1]]", "(x, last)"),
    "comprehension scope": Kind("i = 'kept'\nx = [i for i in range(3)]\nd = {k: [v for v in range(k)] for k in x}", "x.append(len([i for i in x]))", "(x, i, d)"),
    "class scope": Kind("n = 1\nclass C:\n    n = 2\n    m = [n for _ in range(1)]\n    def f(self): return n\nx = C()", "n += 1", "(x.f(), x.m, C.n)"),
    "exec and eval": Kind("x = [1]\nexec('made = [1]')", "exec('x.append(len(made)); made.append(2)'); eval('x.append(3)')", "(x, eval('made'))"),
    "globals writes": Kind("x = [1]\nglobals()['dyn' + 'amic'] = 1", "globals()['dyn' + 'amic'] += 1; globals().update(more=[x])", "(dynamic, globals()['dyn' + 'amic'])"),
    "main by import": Kind("x = [1]\nimport __main__\n__main__.q = 1", "import __main__\n__main__.q += 1; __main__.x.append(__main__.q)", "(x, q)"),
    "sys.modules main": Kind("import sys as s\nx = [1]\nq = 5", "getattr(s.modules['__main__'], 'x').append(s.modules['__main__'].q)", "x"),
    "future annotations": Kind("exec('from __future__ import annotations\\ndef x(a: Unknown) -> Nope: return a')", "x.n = 1", "(x(1), x.__annotations__)"),
    "match": Kind("def x(v):\n    match v:\n        case {'a': [int(n), *r]}: return n, r\n        case str() | None: return 's'\n        case _: return 0", "x.n = 1", "(x({'a': [1, 2]}), x('q'), x(5))"),
    "a found match": Kind("import re\nx = [re.search(r'(?P<w>\\w)(\\d)?', '- a1 b'), re.fullmatch('a|ab', 'ab'), re.compile('b').match('abc', 1), *re.finditer('x*', 'axxb')]",
                          "x.append(re.compile('(?<=a)b').search('xab', 1, 3))", "[(m.groups(), m.span(), m.pos, m.endpos, m.re.pattern, m.lastgroup) for m in x]"),
    "readers of csv": Kind(
        "import csv\nlines = iter(['a;\"b', 'c\"', *'defghijk']); x = csv.reader(lines, delimiter=';'); got = []",
        "got.append(next(x))", "(got, x.line_num, x.dialect.delimiter)"),
    "rows of sqlite3": Kind("import sqlite3\nc = sqlite3.connect(':memory:'); c.row_factory = sqlite3.Row\nx = c.execute('select 1 as a, ? as \"b \"\"c\"', [b'2']).fetchall(); c.close(); del c",
                            "x += [x[0]]", "([(r.keys(), tuple(r), r['A']) for r in x], x[0] == x[-1])"),
    "the system's random numbers": Kind("import random\nx = random.SystemRandom()", "x.random()", "type(x).__name__"),
    "iterators at their end": Kind(
        "x = [iter(bytearray(b'a')), iter(b'a'), reversed([1]), iter([5, 0].pop, 0), iter('a'), iter([1])]",
        "[list(i) for i in x]", "[(type(i).__name__, i.__reduce__()[0].__name__) for i in x]"),
    "iterators over an array.array": Kind(
        "import array\ndata = array.array('d', [1, 2]); ended = []\nx = [iter(data), iter(array.array('i', [5]))]\nnext(x[0]); next(x[1])",
        "ended += [next(one, 'end') for one in x]; data.append(4)",
        "(ended, [type(one).__name__ for one in x], [next(one, 'end') for one in x])",
    ),
}  # fmt: skip
if sys.version_info < (3, 14):  # which pickles no iterator of itertools
    KINDS["zip_longest of which one has ended"] = Kind(
        "import itertools\nx = itertools.zip_longest([], [1], 'abcdefgh')",
        "next(x)",
        "str(type(x))",
    )


@each_group(KINDS)
def test_a_kind_made_at_home_and_away(group, eager, lazy):
    same_as_plain(KINDS, group, eager, lazy)
