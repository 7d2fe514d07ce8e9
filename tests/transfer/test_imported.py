"""What a notebook has by importing it joins nothing and stays what it is on both sides."""

import sys

import pytest

from tests.transfer.kinds import plain

#: Made by hand, they have an identity: it is shared.
TOGETHER = {
    "ufunc of a function": "import numpy as np\nmade = np.frompyfunc(lambda x: x, 1, 1)",
    "type variable of the notebook's": "import typing\nmade = typing.TypeVar('made')",
    "instance": "import types\nmade = types.SimpleNamespace()",
    "member with a list": (
        "import enum\nclass E(enum.Enum): A = 1\nE.A.held = shared = []\nmade = shared"
    ),
}


SAME = {
    "np.add": "import numpy as np",
    "http.HTTPStatus.OK": "import http",
    "zoneinfo.ZoneInfo('Europe/Berlin')": "import zoneinfo",
    "pd.NA": "import pandas as pd",
    "pd.NaT": "import pandas as pd",
    "dataclasses.MISSING": "import dataclasses",
    "typing.AnyStr": "import typing",
    "functools.singledispatch": "import functools",
    "os.environ": "import os",
    "os.environb": "import os",
    "decimal.getcontext()": "import decimal",
    "matplotlib.rcParams": "import matplotlib",
}


@pytest.mark.parametrize("value", SAME)
def test_it_is_itself_on_both_sides(pair, value):
    pair.home(f"{SAME[value]}\nx = [{value}]; y = {{'it': {value}}}")
    pair.gpu(f"assert x[0] is y['it'] is {value}; x.append(2); z = (x[0], [y['it']])")
    pair.home(f"assert x[0] is y['it'] is z[0] is z[1][0] is {value}; w = [1]")
    pair.gpu(f"assert x[0] is y['it'] is z[0] is {value}")


#: A name for what the process has, how a cell sets it by that name, and where all the rest sees it.
BY_NAME = {
    "the environment": (
        "import os; from os import environ as x",
        "x['OWN_WORD'] = str(1 + int(x.get('OWN_WORD', 0)))",
        "os.environ['OWN_WORD']",
    ),
    "a method of the environment": (
        "import os; os.environ['OWN_WORD'] = 'a'; x = os.environ.update",
        "x(OWN_WORD=os.environ['OWN_WORD'] + 'b')",
        "os.environ['OWN_WORD']",
    ),
    "the decimal context": (
        "import decimal; x = decimal.getcontext(); x.prec = 5",
        "x.prec += 1",
        "decimal.Decimal(1) / 3",
    ),
    "matplotlib's parameters": (
        "import matplotlib; from matplotlib import rcParams as x; x['lines.linewidth'] = 1",
        "x['lines.linewidth'] += 1",
        "matplotlib.rcParams['lines.linewidth']",
    ),
}


UNDO = (
    "import os, decimal, matplotlib; os.environ.pop('OWN_WORD', None)\n"
    "decimal.getcontext().prec = 28; matplotlib.rcdefaults()"
)


@pytest.mark.parametrize("kind", BY_NAME)
def test_what_a_process_has_once_is_set_by_any_name_of_it(pair, kind):
    make, change, look = BY_NAME[kind]
    cells = [f"{make}\nseen = []", *[f"{change}; seen.append(str({look}))"] * 4]
    expected = plain([*cells, UNDO])
    for index, source in enumerate(cells):
        (pair.gpu if index % 2 else pair.home)(source)
    pair.home(f"seen\n{UNDO}")
    assert pair.ns["seen"] == expected


def test_a_name_for_the_environment_tells_the_other_side_nothing_of_it(pair, monkeypatch):
    monkeypatch.setenv("OWN_API_TOKEN", "secret")
    pair.home("from os import environ as x, environb as y")
    pair.gpu("assert 'OWN_API_TOKEN' not in x and b'OWN_API_TOKEN' not in y")


def test_a_class_is_itself_where_the_module_that_it_names_is_not_imported(pair, monkeypatch):
    """numpy gives out ``recarray`` and does not import ``numpy.rec``, which it says it is of."""
    monkeypatch.delitem(sys.modules, "numpy.rec", raising=False)
    pair.home(
        "import numpy as np\na = np.zeros(2, [('n', 'i4')])\n"
        "r = a.view(np.recarray); C = np.recarray"
    )
    pair.gpu("assert type(r) is C is np.recarray and r[0].n == 0; r.n += 1")
    pair.home("assert type(r) is C is np.recarray and a['n'].tolist() == [1, 1]")


@pytest.mark.parametrize("alias", ["typing.Optional[int]", "typing.List[typing.Dict[str, int]]"])
def test_an_alias_is_equal_on_both_sides(pair, alias):
    """Which one it is depends on typing's cache, which forgets what was not used for long."""
    pair.home(f"import typing\nx = [{alias}]; y = {{'it': {alias}}}")
    pair.gpu(f"assert x[0] == y['it'] == {alias}; x.append(2); z = (x[0], [y['it']])")
    pair.home(f"assert x[0] == y['it'] == z[0] == z[1][0] == {alias}; w = [1]")
    pair.gpu(f"assert x[0] == y['it'] == z[0] == {alias}")


@pytest.mark.parametrize("kind", [kind for kind in TOGETHER if kind != "ufunc of a function"])
def test_what_is_made_by_hand_stays_shared(pair, kind):
    pair.home(TOGETHER[kind] + "\na, b = [made], {'it': made}")
    pair.gpu("assert a[0] is b['it'] is made; a.append(1)")
    pair.home("assert a[0] is b['it'] is made")


def test_an_array_has_its_dtype_from_numpy(pair):
    pair.home("import numpy as np\nx = np.zeros(3); r = np.zeros(2, [('a', 'i4')])")
    pair.gpu("assert x.dtype == np.dtype('f8'); x += 1; r['a'] = 2")
    pair.home("assert x.dtype == np.dtype('f8') and r.dtype.names == ('a',)")


def test_dataclasses_with_defaults_are_whole_on_the_other_side(pair):
    pair.home(
        "from dataclasses import dataclass, field, fields, MISSING\n"
        "@dataclass\nclass A:\n    n: int\n    m: list = field(default_factory=list)\n"
        "@dataclass\nclass B:\n    n: int = 3\nx, y = A(1), B()"
    )
    pair.gpu("assert fields(A)[0].default is MISSING and A(2).m == [] and B().n == 3; x.n = 5")
    pair.home("assert x == A(5) and fields(x)[0].default is MISSING; B.n = 4; z = B")
    pair.gpu("assert z is B and fields(B)[0].name == 'n'")


def test_an_empty_instance_of_a_notebooks_class_is_no_module_s(pair):
    pair.home("class C: pass\nx = C(); y = [x]")
    pair.gpu("assert y[0] is x; x.n = 1; z = C()")
    pair.home("assert y[0].n == 1 and not vars(z) and type(z) is C")
