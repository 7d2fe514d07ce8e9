"""What Python 3.12 to 3.14 brought: on each, as in one process of that version."""
# ruff: noqa: E501 - one cell a line

import sys

import pytest

from gpulease.errors import GPULeaseError
from tests.transfer.kinds import Kind, each_group, empty, same_as_plain

#: By the version that brought it; annotations are written in every one, and are code from 3.14 on.
BY_VERSION = {
    (3, 11): {
        "annotations of a class that nobody has read": Kind(
            "class A:\n    n: int = 1\n    many: 'list[A]' = []\nx = A()",
            "x.many.append(len(A.__annotations__))",
            "(A.__annotations__, x.many, A.n)",
        ),
        "annotations that were read and changed": Kind(
            "class A:\n    n: int = 1\nnotes = A.__annotations__; x = A()",
            "notes['more'] = str; A.__annotations__['k'] = A",
            "(list(A.__annotations__), A.__annotations__ is notes, A.__annotations__.get('k', A) is A)",
        ),
        "annotations of a function": Kind(
            "class A: pass\ndef outer():\n    limit = 3\n    def f(a: A, b: 'limit' = limit) -> list[A]: return b\n    return f\nx = outer()",
            "x.__annotations__['more'] = 1; x.note = x(A())",
            "(list(x.__annotations__), x.__annotations__['a'] is A, x.__annotations__['return'] == list[A], x(1))",
        ),
        "hints by name": Kind(
            "import typing\nclass Node:\n    next: 'Node | None' = None\n    def link(self, other: 'Node') -> 'Node': self.next = other; return other\nx = Node(); last = x.link(Node())",
            "last = last.link(Node())",
            "(typing.get_type_hints(Node.link)['other'] is Node, x.next.next is last)",
        ),
        "data classes": Kind(
            "import dataclasses, typing\n@dataclasses.dataclass(slots=True, order=True)\nclass P:\n    a: int\n    b: list = dataclasses.field(default_factory=list)\n"
            "@dataclasses.dataclass(frozen=True)\nclass F:\n    p: P\n    kind: typing.ClassVar[str] = 'f'\nclass R(typing.NamedTuple):\n    a: int\n    f: F | None = None\nclass D(typing.TypedDict, total=False):\n    r: R\n"
            "p = P(1); f = F(p); r = R(2, f); x = D(r=r)",
            "p.b.append(dataclasses.replace(p, a=0)); P.more = 1",
            "(x['r'].f.p is p, f.p.b, [n.name for n in dataclasses.fields(P)], R.__annotations__['a'], sorted(D.__optional_keys__), getattr(P, 'more', 0), p.b and p > p.b[0])",
        ),
        "protocols and generics": Kind(
            "import typing\nT = typing.TypeVar('T')\n@typing.runtime_checkable\nclass Sized(typing.Protocol):\n    size: int\nclass Box(typing.Generic[T]):\n    size = 2\n    def __init__(self, v: T) -> None: self.v = v\nx = Box[int](3)",
            "x.v += Box.size",
            "(x.v, isinstance(x, Sized), x.__orig_class__ == Box[int], Box.__parameters__ == (T,))",
        ),
        "models of pydantic": Kind(
            "import pydantic\nclass M(pydantic.BaseModel):\n    n: int = 1\n    many: list[int] = pydantic.Field(default_factory=list)\nclass Outer(pydantic.BaseModel):\n    m: M\n    model_config = pydantic.ConfigDict(extra='allow')\nm = M(); x = Outer(m=m, more=2)",
            "x.m.many.append(x.more); x.m.n += 1",
            "(x.m.n, x.m.many, x.m is m, list(M.model_fields), x.model_dump(), M.model_validate({'n': '4'}).n)",
        ),
    },
    (3, 12): {
        "type parameters": Kind(
            "type Pairs[T] = list[tuple[T, T]]\ntype Json = dict[str, Pairs[int]] | int\nclass Box[T: (int, str)]:\n    def __init__(self, v: T): self.v = v\n    def get(self) -> T: return self.v\ndef first[T](many: list[T]) -> T: return many[0]\nx = Box(1); alias = Pairs",
            "x.v += first([2]); Box.more = Pairs[int]",
            "(x.get(), alias is Pairs, Pairs.__name__, Pairs.__type_params__[0].__name__, Box.__type_params__ == Box.__parameters__, first.__type_params__[0].__name__, Json.__value__ == (dict[str, Pairs[int]] | int), getattr(Box, 'more', Pairs[int]) == Pairs[int], Box.get.__annotations__['return'] is Box.__type_params__[0])",
        ),
        "an iterator of itertools's batches": Kind(
            "import itertools\nx = list(itertools.batched('abcd', 2))", "x.append(1)", "x"
        ),
    },
    (3, 13): {
        "defaults of type parameters": Kind(
            "class Box[T = int, *Ts = *tuple[int, ...]]: pass\nx = Box()",
            "x.n = 1",
            "(vars(x), [p.__default__ for p in Box.__type_params__][0], Box.__type_params__[0].has_default())",
        ),
        "what copies itself with changes": Kind(
            "import copy\nclass V:\n    def __init__(self, a): self.a = a\n    def __replace__(self, **new): return V(**(vars(self) | new))\nx = V([1])",
            "x = copy.replace(x, a=x.a + [2])",
            "x.a",
        ),
    },
    (3, 14): {
        "templates": Kind(
            "n = [1]; x = t'a{n!r:>5}b{len(n)}'",
            "n.append(2)",
            "(x.strings, x.interpolations[0].value is n, x.interpolations[0].conversion, x.interpolations[0].format_spec, x.values[1])",
        ),
        "annotations of names that come later": Kind(
            "import annotationlib\nclass A:\n    other: Later\n    def f(self, v: Later) -> Missing: pass\nx = A()\ntext = annotationlib.get_annotations(A, format=annotationlib.Format.STRING)",
            "class Later: pass",
            "(text, annotationlib.get_annotations(A.f, format=annotationlib.Format.STRING), 'Later' in globals() and annotationlib.get_annotations(A)['other'] is Later)",
        ),
        "places kept in a partial function": Kind(
            "import functools\nx = functools.partial(lambda *a: a, functools.Placeholder, [2])",
            "x.args[1].append(3)",
            "(x(1), x.args[0] is functools.Placeholder)",
        ),
        "identifiers in order": Kind(
            "import uuid\nx = [uuid.UUID(int=5), uuid.NIL]", "x.append(len(x))", "x"
        ),
    },
}
KINDS = {
    name: kind
    for version, kinds in BY_VERSION.items()
    if sys.version_info >= version
    for name, kind in kinds.items()
}


@each_group(KINDS)
def test_a_kind_made_at_home_and_away(group, eager, lazy):
    same_as_plain(KINDS, group, eager, lazy)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="what a type statement makes is new in 3.12")
def test_a_type_that_is_named_in_its_own_definition_is_refused_by_name(eager):
    empty(eager)
    eager.home("type Tree = dict[str, Tree] | int\nx = [Tree]; n = 1")
    eager.gpu("n += 1")
    with pytest.raises(GPULeaseError, match=r"x cannot travel .* named in its own definition"):
        eager.gpu("x")
    eager.home("assert x == [Tree] and n == 2\ndel x, Tree")
