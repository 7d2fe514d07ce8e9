"""What is held outside the notebook's names is updated in place, or named under the cell."""

import pytest

from tests.transfer.kinds import empty
from tests.transfer.pair import kept_notes

FRAME = ("import pandas as pd\nx = pd.DataFrame({'a': [1, 2]})", "x['b'] = x.a * 2")
MODEL = (
    "import numpy as np\nfrom sklearn.linear_model import LinearRegression\nx = LinearRegression()",
    "x.fit(np.eye(2), np.ones(2))",
)
FIGURE = (
    "import matplotlib; matplotlib.use('agg')\nfrom matplotlib.figure import Figure\nx = Figure()",
    "x.add_subplot()",
)


#: A frame that a generator holds.
HELD = (
    "import pandas as pd\n{name} = pd.DataFrame({{'a': range(5)}})\n"
    "def sums(x):\n    while True: yield int(x.a.sum())\nrows = sums({name})"
)


def kept(pair):
    return kept_after(pair, "x")


def kept_after(pair, source):
    pair.home(source)
    return [name for note in kept_notes(pair) for name in note.names]


@pytest.mark.parametrize(("make", "change"), [FRAME, MODEL])
def test_a_holder_outside_is_named(pair, make, change):
    """What a container holds too is replaced with it."""
    pair.home(make + "\nbox = [x]")
    holder = [pair.ns["x"]]
    pair.gpu(change)
    assert kept(pair) == ["x"]
    assert holder[0] is not pair.ns["x"]


def test_a_holder_of_what_cannot_be_updated_is_named_once(pair):
    make, change = FIGURE
    pair.home(make)
    holder = [pair.ns["x"]]
    pair.gpu(change)
    assert kept(pair) == ["x"]
    holder.append(pair.ns["x"])
    pair.gpu(change)
    assert kept(pair) == []
    assert len({id(x) for x in (*holder, pair.ns["x"])}) == 3


def test_who_holds_it_is_said(pair):
    make, change = FIGURE
    pair.home(make)
    holder = [pair.ns["x"]]
    pair.gpu(change)
    pair.home("x")
    (note,) = kept_notes(pair)
    assert "a list that is in none of your variables" in note.sentence
    del holder


ENUM = "import enum, http\nclass Color(enum.Enum): RED = 1; BLUE = 2\n"


@pytest.mark.parametrize(
    ("make", "change"),
    [
        ("from math import *", "from numpy import *"),
        (f"{ENUM}x = Color.RED", "x = Color.BLUE"),
        (f"{ENUM}x = http.HTTPStatus.OK", "x = http.HTTPStatus.NOT_FOUND"),
        ("import numpy as np\nx = np.add", "x = np.multiply"),
        ("import os\nx = os.environ", "x = [1]"),
    ],
)
def test_what_a_module_or_class_has_by_a_name_is_not_named(pair, make, change):
    """The cell gave the name another object; whoever has the one from before shall keep it."""
    pair.home(make)
    pair.gpu(change)
    assert kept_after(pair, "1") == []


def test_what_a_module_has_by_a_name_is_not_followed(pair):
    """Else each cell would ask for each of numpy's functions who holds it, for some seconds."""
    pair.home("from math import *")
    pair.gpu("from numpy import *")
    pair.home("1")
    followed = pair.side.side._counterparts.values()
    assert all(type(each) is dict for each in followed), "only what can change"


def test_a_holder_of_what_the_cell_bound_anew_is_not_named(pair):
    """In a plain kernel it would keep the same."""
    make, change = FIGURE
    pair.home(make)
    holder = [pair.ns["x"]]
    pair.gpu(f"x = Figure()\n{change}")
    assert kept(pair) == []
    assert holder[0] is not pair.ns["x"]


@pytest.mark.parametrize(("make", "change"), [FRAME, MODEL, FIGURE])
def test_nothing_is_said_where_nobody_holds_it(pair, make, change):
    pair.home(make + "\nalias = x\nbox = {'in': [x]}")
    pair.gpu(change)
    assert kept(pair) == []


def test_a_view_does_not_count_as_a_holder(pair):
    pair.home("import numpy as np\nx = np.arange(6.0); y = x[1:3]")
    pair.gpu("y[0] = 9")
    assert kept(pair) == []


def test_a_displayed_result_does_not_count(pair):
    pair.home(FRAME[0] + "\n_oh = {1: x}\n_ = x\n_1 = x")
    pair.gpu(FRAME[1])
    assert kept(pair) == []


def test_what_is_updated_in_place_is_not_named(pair):
    pair.home("x = [1]")
    holder = [pair.ns["x"]]
    pair.gpu("x.append(2)")
    assert kept(pair) == []
    assert holder[0] == [1, 2]


def test_a_module_that_a_generator_runs_in_is_updated_in_place(pair):
    pair.home("import types\nx = types.ModuleType('x'); exec('k = 0', vars(x))")
    pair.home("exec('def count():\\n    while True: yield k', vars(x)); g = x.count(); next(g)")
    pair.gpu("x.k += 1")
    pair.home("x.k += 1; assert next(g) == 2")
    assert not kept_notes(pair)


def test_a_figure_that_only_its_own_canvas_holds_is_not_named(pair):
    pair.home(FIGURE[0])
    holder = [pair.ns["x"]]
    pair.gpu("x = Figure()")
    holder.clear()
    pair.home(FRAME[0])
    pair.gpu(FRAME[1])
    assert kept(pair) == []


@pytest.mark.parametrize("first", ["home", "gpu"])
def test_what_something_holds_is_named_also_where_the_value_comes_by_need(lazy, first):
    empty(lazy)
    here, there = (lazy.home, lazy.gpu)[:: 1 if first == "home" else -1]
    name = f"of_{first}"
    here(HELD.format(name=name) + "; _ = next(rows)")
    there(f"{name}.loc[1, 'a'] = 9")
    here("_ = next(rows)")
    assert [note.names for note in kept_notes(lazy)] == [(name,)]


@pytest.mark.parametrize(("name", "then"), [("gone", "del gone"), ("other", "other = 1")])
def test_a_holder_is_named_also_where_the_variable_is_gone_or_another(lazy, name, then):
    empty(lazy)
    lazy.home(HELD.format(name=name))
    lazy.gpu(f"{name}.loc[1, 'a'] = 9; {then}")
    lazy.home("_ = next(rows)")
    (note,) = kept_notes(lazy)
    assert note.sentence.startswith(name)
    assert ", and rows still has the one from before." in note.sentence


@pytest.mark.parametrize(
    ("name", "then", "said"),
    [
        ("left", "pass", "left is newer on the GPU and cannot come, and rows still has"),
        ("gone2", "del gone2", "gone2 was deleted, and rows still has"),
        ("other2", "other2 = 1", "other2 is another object in your notebook since a GPU cell"),
    ],
)
def test_what_cannot_be_filled_with_its_new_shape_is_named_to_its_holder(lazy, name, then, said):
    empty(lazy)
    lazy.home(
        f"import numpy as np\n{name} = np.zeros(4)\ndef shapes(x):\n    while True: yield x.shape\n"
        f"rows = shapes({name})"
    )
    lazy.gpu(f"{name}.shape = (2, 2); {then}")
    lazy.home("now = next(rows)")
    (note,) = kept_notes(lazy)
    assert note.sentence.startswith(said)


def test_a_widget_that_its_library_holds_is_not_named(pair):
    pair.home("import ipywidgets\nx = ipywidgets.IntSlider(3)")
    pair.gpu("x.value = 4; x = ipywidgets.IntSlider(5)")
    assert kept(pair) == []


def test_a_generator_of_numbers_is_named_too_of_which_a_part_is_filled(eager):
    empty(eager)
    eager.gpu("import numpy as np\ndef draws(x):\n    while True: yield x.random()")
    eager.gpu("dice = np.random.default_rng(0)")
    eager.home("rows = draws(dice)")
    eager.gpu("_ = dice.random(); del dice")
    eager.home("_ = next(rows)")
    (note,) = kept_notes(eager)
    assert note.sentence.startswith("dice was deleted, and rows still has")
