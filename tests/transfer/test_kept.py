"""What is held outside the notebook's names is updated in place, or named under the cell."""

import pytest

FRAME = ("import pandas as pd\nx = pd.DataFrame({'a': [1, 2]})", "x['b'] = x.a * 2")
MODEL = (
    "import numpy as np\nfrom sklearn.linear_model import LinearRegression\nx = LinearRegression()",
    "x.fit(np.eye(2), np.ones(2))",
)
FIGURE = (
    "import matplotlib; matplotlib.use('agg')\nfrom matplotlib.figure import Figure\nx = Figure()",
    "x.add_subplot()",
)


def kept(pair):
    pair.home("pass")
    notes = (*pair.after.notes, *pair.last.notes)
    return [name for note in notes if note.reason == "kept_old_object" for name in note.names]


@pytest.mark.parametrize(("make", "change"), [FRAME, MODEL])
def test_a_holder_outside_is_named(pair, make, change):
    pair.home(make)
    holder = [pair.ns["x"]]
    pair.gpu(change)
    assert kept(pair) == ["x"]
    assert holder[0] is not pair.ns["x"]


@pytest.mark.parametrize(("make", "change"), [FRAME, MODEL, FIGURE])
def test_nothing_is_said_where_nobody_holds_it(pair, make, change):
    pair.home(make + "\nalias = x\nbox = {'in': [x]}")
    pair.gpu(change)
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
