"""CuPy's arrays and cuDF's frames: numpy's and pandas' in the notebook, their own on the GPU."""

from pathlib import Path

import pytest

from gpulease.errors import GPULeaseError

STAND_INS = Path(__file__).with_name("stand_ins")
BEGIN = f"import sys\nsys.path.insert(0, {str(STAND_INS)!r})\nimport cupy as cp\n"
ARRAY = BEGIN + "x = cp.arange(6.); box = [x, 'x']\n"
FRAME = BEGIN + "import cudf\ndf = cudf.DataFrame({'a': [1, 2]}); s = cudf.Series(df.a)\n"
AT_HOME = "import numpy as np\nassert isinstance(x, np.ndarray) and box[0] is x\n"


@pytest.fixture
def pair(new_pair, monkeypatch):
    monkeypatch.syspath_prepend(str(STAND_INS))  # the cells do it as well; it is taken out again
    made = new_pair(settings={"reply_wait": 30})
    made.attach()
    return made


def test_an_array_is_numpys_at_home_and_goes_back_as_the_same_one(pair):
    pair.gpu(ARRAY + "me = id(x)")
    pair.home(
        AT_HOME + "assert x.tolist() == [0, 1, 2, 3, 4, 5] and x.get() is not x\nme_too = id(x)"
    )
    pair.home("x[0] = 9")
    pair.gpu("assert type(x) is cp.ndarray and id(x) == me and box[0] is x and x.tolist()[0] == 9")
    pair.gpu("x *= 2")
    pair.home("assert x.tolist() == [18, 2, 4, 6, 8, 10] and id(x) == me_too")


def test_what_is_not_changed_does_not_travel_again(pair):
    pair.gpu(ARRAY)
    pair.home(AT_HOME)
    pair.home("n = float(x.sum())")
    pair.gpu("n, x")
    assert "x" not in pair.last.moved
    pair.home("x")
    assert "x" not in pair.last.moved


def test_what_is_computed_at_home_is_numpys(pair):
    pair.gpu(ARRAY)
    pair.home(
        AT_HOME
        + "y = x + 1; z = x.sum(); w = x.copy(); import pickle; p = pickle.loads(pickle.dumps(x))"
    )
    pair.home("assert type(y) is np.ndarray and type(z) is np.float64 and type(p) is np.ndarray")
    pair.gpu("import numpy\nassert type(y) is numpy.ndarray and y.tolist()[0] == 1 and z == 15")
    pair.gpu("assert type(w) is cp.ndarray, 'what CuPy would have given'")


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_new_companion_has_it_as_cupys(pair, order):
    pair.gpu(
        BEGIN + f"x = cp.ndarray(__import__('numpy').ones((2, 3), order='{order}')); box = [x]"
    )
    pair.home(AT_HOME + f"x[0, 1] = 5\nassert x.flags.{order.lower()}_contiguous")
    assert pair.side.drain(60).done
    pair.side.disconnect(died=False)
    pair.companion.close()
    pair.attach()
    pair.gpu("import cupy as cp\nassert type(x) is cp.ndarray and box[0] is x")
    pair.gpu(f"assert x.flags.{order.lower()}_contiguous")
    pair.gpu("assert x.tolist() == [[1, 5, 1], [1, 1, 1]]")


@pytest.mark.parametrize("change", ["y = x[2:]", "y = np.asarray(x)"])
def test_memory_that_two_show_stays_by_name(pair, change):
    pair.gpu(ARRAY + "y = x[1:]")
    with pytest.raises(GPULeaseError, match=r"x .*cannot travel.*memory that another array shows"):
        pair.home("x")
    pair.gpu("y = y.copy()")
    pair.home(AT_HOME + "assert y.tolist() == [1, 2, 3, 4, 5]\n" + change)
    with pytest.raises(GPULeaseError, match=r"x.* cannot travel.*memory that another array shows"):
        pair.gpu("x")
    pair.home("y = 0")
    pair.gpu("assert x.tolist()[5] == 5")


def test_a_frame_is_pandas_at_home_and_cudfs_on_the_gpu(pair):
    pair.gpu(FRAME)
    pair.home(
        "import pandas as pd\nassert isinstance(df, pd.DataFrame) and isinstance(s, pd.Series)"
    )
    pair.home(
        "assert df.a.sum() == 3 and type(df[df.a > 1]) is pd.DataFrame and s.tolist() == [1, 2]"
    )
    pair.home(
        "assert type(df.to_pandas()) is pd.DataFrame and type(s + 1) is pd.Series\ndf['b'] = 7"
    )
    pair.gpu(
        "assert type(df) is cudf.DataFrame and df.b.tolist() == [7, 7] and type(s) is cudf.Series"
    )
    pair.gpu("df['c'] = 1")
    pair.home("assert list(df.columns) == ['a', 'b', 'c']")


def test_the_size_of_a_frame_counts(new_pair, monkeypatch):
    monkeypatch.syspath_prepend(str(STAND_INS))
    pair = new_pair(settings={"reply_wait": 30}, available=lambda: 256 * 2**20 + 400_000)
    pair.attach()
    pair.gpu(FRAME + "df['b'] = 0\ndf = cudf.DataFrame({'a': range(1_000_000)})")
    told = {name for note in pair.after.notes if note.reason == "too_large" for name in note.names}
    assert told == {"df"}
