"""Enumerations of the notebook: members, aliases, attributes and combinations, as they were made."""

# ruff: noqa: E501 - one kind a line

from tests.transfer.kinds import Kind, each_group, same_as_plain

KINDS = {
    "Enum": Kind(
        "import enum\nclass Colour(enum.Enum):\n    RED = 1\n    BLUE = [2]\n    def hot(self): return self is Colour.RED\n"
        "x = Colour.RED", "x = Colour.BLUE if x.hot() else Colour.RED", "(repr(x), x.hot(), x is Colour(x.value))", same=False),
    "IntFlag": Kind("import enum\nclass F(enum.IntFlag):\n    A = enum.auto()\n    B = enum.auto()\nx = F.A", "x = x ^ F.B",
                    "(repr(x), F.B in x, isinstance(x, F))", same=False),
    "StrEnum": Kind("import enum\nclass S(enum.StrEnum):\n    A = enum.auto()\nx = [S.A]", "x.append(S('a'))", "(x, x[0] is S.A)"),
    "enum changed": Kind("import enum\nclass x(enum.Enum):\n    A = 1", "x.note = getattr(x, 'note', 0) + 1",
                         "(x.A.value, getattr(x, 'note', None), x(1) is x.A)"),
    "made by a constructor": Kind(
        "import enum\nclass P(enum.Enum):\n    EARTH = (5.9, 6.3)\n    MARS = (6.4, 3.4)\n"
        "    def __init__(self, mass, radius): self.mass = mass; self.radius = radius\n"
        "    @property\n    def g(self): return round(self.mass / self.radius, 3)\nx = P.MARS",
        "x.mass += 1; P.EARTH.moons = getattr(P.EARTH, 'moons', 0) + 1",
        "(x.g, x.mass, getattr(P.EARTH, 'moons', 0), P((5.9, 6.3)) is P.EARTH, x is P.MARS, P['MARS'] is x, [m.name for m in P])"),
    "aliases": Kind(
        "import enum\nclass A(enum.Enum):\n    ONE = 1\n    UNO = 1\n    TWO = 2\nx = A.ONE", "pass",
        "(A['UNO'] is A.ONE, list(A.__members__), [m.name for m in A], len(A), A(1) is x)"),
    "made by __new__": Kind(
        "import enum\nclass C(bytes, enum.Enum):\n    def __new__(cls, value, label):\n"
        "        one = bytes.__new__(cls, [value]); one._value_ = value; one.label = label\n        return one\n"
        "    PX = (0, 'x')\n    VY = (2, 'y')\nx = C.VY", "x.label += 'z'",
        "(bytes(x), x.value, x.label, C(2) is x, C.PX.label, x[0])"),
    "flags with names for combinations": Kind(
        "import enum\nclass F(enum.Flag):\n    R = enum.auto()\n    W = enum.auto()\n    X = enum.auto()\n    RW = R | W\n"
        "x = {'may': F.RW, 'must': F.R | F.X}", "x['not'] = ~F.R; x['may'] ^= F.X; x['own'] = F.R & F.RW",
        "({k: (v.name, v.value) for k, v in sorted(x.items())}, F.R | F.W is F.RW, F(3) is F.RW, F(5) is x['must'], [f.name for f in F], [f.name for f in F.RW])"),
    "values by rule, and what is missing": Kind(
        "import enum\nclass L(enum.Enum):\n    @staticmethod\n    def _generate_next_value_(name, *_): return name.lower()\n"
        "    @classmethod\n    def _missing_(cls, value): return cls.LOW\n    LOW = enum.auto()\n    HIGH = enum.auto()\nx = L.HIGH",
        "L.default = L.HIGH if getattr(L, 'default', L.LOW) is L.LOW else L.LOW",
        "(x.value, L('?') is L.LOW, getattr(L, 'default', None))"),
    "over a base of its own": Kind(
        "import enum\nclass B(str, enum.Enum):\n    def shout(self): return self.upper() + '!'\n"
        "class S(B):\n    A = 'a'\n    B = 'b'\nx = [S.A]", "x.append(S('b'))",
        "([v.shout() for v in x], x[0] == 'a', x[0] is S.A, ''.join(x), isinstance(x[0], B))"),
    "over data of its own": Kind(
        "import enum, dataclasses\n@dataclasses.dataclass\nclass D:\n    n: int\n    tags: list = dataclasses.field(default_factory=list)\n"
        "class E(D, enum.Enum):\n    ONE = 1\n    TWO = 2\nx = E.ONE", "x.tags.append(x.n)",
        "(x.tags, x.n, E.TWO.n, E.ONE is x)"),
    "values that have no hash": Kind(
        "import enum\nclass V(enum.Enum):\n    A = [1]\n    B = {'k': 2}\nx = V.A", "x.value.append(len(x.value))",
        "(x.value, V([9]) if False else V(V.B.value) is V.B)"),
    "by a call, by keys, in order": Kind(
        "import enum\nN = enum.Enum('N', 'ONE TWO')\nI = enum.IntEnum('I', {'LOW': 1, 'HIGH': 2})\n"
        "x = {N.ONE: 'one', I.HIGH: 'high'}", "x[N.TWO] = x[N.ONE] + '+'; x[I(1)] = len(x)",
        "([(k.name, v) for k, v in x.items()], x[N.ONE], sorted([I.HIGH, I.LOW])[0].name, I.HIGH + 1, x[2])"),
    "a variable that a member holds": Kind(
        "import enum\nl = [1]\nclass H(enum.Enum):\n    A = 1\nH.A.l = l\nx = H.A", "x.l.append(2)",
        "(l, x.l is l)"),
    "defined anew": Kind(
        "import enum\nclass E(enum.Enum):\n    A = 1\nx = [E.A]",
        "class E(enum.Enum):\n    A = 1\n    B = 2\nx.append(E.B)", "([v.name for v in x], x[-1] is E.A, isinstance(x[0], E))"),
}  # fmt: skip


@each_group(KINDS)
def test_an_enumeration_made_at_home_and_away(group, eager, lazy):
    same_as_plain(KINDS, group, eager, lazy)
