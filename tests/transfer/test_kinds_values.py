"""Numbers, texts, dates and the like with a class of the notebook: made on one side, used on both.

None of their classes' constructors runs again: each counts.
"""

# ruff: noqa: E501 - one notebook a line

import sys

from tests.transfer.kinds import Kind, each_group, plain, play, same_as_plain

MADE = "made = []\n"

KINDS = {
    "a number that is computed when it is made": Kind(MADE + "class F(float):\n    def __new__(cls, c): made.append(c); return super().__new__(cls, c * 9 / 5 + 32)\n    def __init__(self, c): self.c = c\nx = F(10); d = {x: 1}",
                                                      "x.l = [*getattr(x, 'l', []), 1]; l = x.l", "(x, x.c, getattr(x, 'l', 0), d[50.0], type(x) is F, made)", same=False),
    "numbers and texts that want more than their value": Kind(
        MADE + "class I(int):\n    def __new__(cls, n, who): made.append(n); o = super().__new__(cls, n * 2); o.who = who; return o\nclass S(str):\n    __slots__ = ('lang', '__dict__')\n    def __new__(cls, s, lang): o = super().__new__(cls, s.upper()); o.lang = lang; return o\n    def __setattr__(self, name, value): made.append(name); super().__setattr__(name, value)\n"
        "class B(bytes):\n    def __new__(cls, n): return super().__new__(cls, b'x' * n)\nclass C(complex):\n    def __new__(cls, r): return super().__new__(cls, r, r)\n    def __getattr__(self, name): return name\nx = [I(5, 'me'), S('a', 'de'), B(3), C(2)]", "x.append(I(len(x), 'n'))",
        "(x, x[0].who, x[1].lang, [type(v).__name__ for v in x], x[3].q, {'A': 1}[x[1]], made)"),
    "an amount of money": Kind(MADE + "import decimal, fractions\nclass M(decimal.Decimal):\n    def __new__(cls, v, cur='EUR'): made.append(v); o = super().__new__(cls, v); o.cur = cur; return o\n    def __str__(self): return 'money'\nclass Q(fractions.Fraction):\n    def __new__(cls, s): o = super().__new__(cls, s); o.of = s; return o\nx = [M('3.50', 'USD'), Q('1/3')]",
                               "x.append(M(len(x)))", "([v.as_tuple() for v in x if type(v) is M], [v.cur for v in x if type(v) is M], x[1], x[1].of, made)"),
    "dates": Kind(MADE + "import datetime as dt\nclass D(dt.date):\n    def __new__(cls, s): made.append(s); return super().__new__(cls, *map(int, s.split('-')))\n    def __init__(self, s): self.s = [s]\nclass W(dt.datetime):\n    def __new__(cls, *a, tag='x', **k): o = super().__new__(cls, *a, **k); o.tag = tag; return o\n"
                  "class T(dt.timedelta):\n    def __new__(cls, hours): return super().__new__(cls, hours=hours)\nclass H(dt.time):\n    def __init__(self, *a): self.notes = []\nx = [D('2024-02-03'), W(2024, 3, 4, 5, tag='q', fold=1), T(5), H(3, 4)]", "x[0].s.append(x[1].tag); x[3].notes.append(1)",
                  "(x, x[0].s, x[1].tag, x[1].fold, x[3].notes, [type(v).__name__ for v in x], made)"),
    "a time zone": Kind("import datetime as dt\nclass Z(dt.tzinfo):\n    def __init__(self, h): self.h = h\n    def utcoffset(self, d): return dt.timedelta(hours=self.h)\n    def dst(self, d): return None\nx = Z(3); w = dt.datetime(2024, 1, 1, tzinfo=Z(2))",
                        "x = y = box['in'][0] = Z(x.h + 1)", "(x.h, w.isoformat(), dt.datetime(2024, 1, 1, tzinfo=x).isoformat())", same=False),
    "paths and addresses": Kind(MADE + "import ipaddress, pathlib, sys; new = sys.version_info >= (3, 12)\nclass P(type(pathlib.Path())):\n    def __init__(self, *a): made.append(len(a)); self.opened = [0]; new and super().__init__(*a)\nclass A(ipaddress.IPv4Address):\n    def __init__(self, s, name='?'): super().__init__(s); self.name = name\nclass N(ipaddress.IPv4Network):\n    def __init__(self, s, name='?'): super().__init__(s); self.name = name\n"
                                "x = [P('a', 'b'), A('1.2.3.4', 'h'), N('10.0.0.0/30', 'n')]; hash(x[0]); o = x[0].opened", "o.append(1)", "(str(x[0]), x[0].opened, o is x[0].opened, x[1], x[1].name, x[2], x[2].name, type(x[0]) is P, len(made) > 0)"),
    "what draws": Kind("import random\nclass R(random.Random):\n    def __new__(cls, seed, sides): return super().__new__(cls, seed)\n    def __init__(self, seed, sides): super().__init__(seed); self.sides = sides; self.log = []\n    def roll(self): self.log.append(self.randint(1, self.sides))\nx = R(3, 6)",
                       "x.roll(); x.gauss(0, 1)", "(x.log, x.sides, x.getstate()[1][-1], x.gauss_next)"),
    "a namespace that wants a path": Kind("import types\nclass C(types.SimpleNamespace):\n    def __init__(self, path): super().__init__(path=path, n=[1])\nx = C('p'); x.me = x; cfg = vars(x)", "x.n.append(1); cfg['k'] = x.n", "(x.path, x.n, vars(x) is cfg, getattr(x, 'k', x.n) is x.n, x.me is x)"),
    "containers that want something else": Kind(
        MADE + "import collections\nclass L(list):\n    def __new__(cls, n): made.append(n); return super().__new__(cls)\n    def __init__(self, n): super().__init__(range(n)); self.n = n\nclass D(dict):\n    def __new__(cls, q): return super().__new__(cls)\n    def __init__(self, q): super().__init__(q=q)\n"
        "class Q(collections.deque):\n    def __new__(cls, n): return super().__new__(cls)\n    def __init__(self, n): super().__init__(maxlen=n)\nclass S(set):\n    def __new__(cls, name, *v): return super().__new__(cls)\n    def __init__(self, name, *v): super().__init__(v); self.name = name\nclass Z(frozenset):\n    def __new__(cls, *v): o = super().__new__(cls, v); o.n = len(v); return o\n"
        "x = [L(3), D(4), Q(2), S('q', 4), Z(1, 2)]; s = x[3]; d = x[1]", "x[0].append(1); d['l'] = x[0]; x[2].append(len(x[0])); s.add(len(x[0]))",
        "(x[0], x[0].n, x[1], d is x[1], x[2], sorted(s), s.name, s is x[3], sorted(x[4]), x[4].n, made)"),
    "one of each value": Kind(MADE + "class U(str):\n    known = {}\n    def __new__(cls, s):\n        if s not in cls.known: cls.known[s] = super().__new__(cls, s); made.append(s)\n        return cls.known[s]\nx = U('a')", "U('a'); U('b')", "(x, U('a'), sorted(U.known), made)", same=False),
    "a value with a way of its own": Kind("class V(float):\n    def __new__(cls, v, unit): o = super().__new__(cls, v); o.unit = unit; return o\n    def __getnewargs__(self): return (float(self), self.unit + '+')\nx = V(2, 'm')", "y = V(3, x.unit)", "(float(x), x.unit[0])", same=False),
}  # fmt: skip


@each_group(KINDS)
def test_it_is_what_a_plain_kernel_has(group, eager, lazy):
    same_as_plain(KINDS, group, eager, lazy)


def test_so_is_one_of_a_class_of_a_module_of_the_persons_own(eager, monkeypatch, tmp_path):
    (tmp_path / "amounts.py").write_text(
        "import decimal\nclass Money(decimal.Decimal):\n"
        "    def __new__(cls, v, cur):\n        o = super().__new__(cls, v); o.cur = cur; return o\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    look = "seen.append((str(m), m.cur, type(m) is amounts.Money))"
    cells = (
        "import amounts; seen = []; m = amounts.Money('2.5', 'USD')",
        look,
        f"m.cur = 3; {look}",
        look,
    )
    try:
        expected = plain(cells)
        assert play(eager, cells, beside_gpu=False) == expected
    finally:
        sys.modules.pop("amounts", None)
