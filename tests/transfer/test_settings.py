"""Settings inside modules, set in one cell, hold in the next one, wherever it runs."""
# ruff: noqa: E501 - one setting a line

import pickle
import sys
from dataclasses import replace

import pytest

from gpulease.sides.state.known_settings import SETTINGS as KNOWN
from gpulease.sides.state.settings import Settings
from tests.transfer.kinds import empty, in_turn
from tests.transfer.pair import CellError

#: What a cell sets, and an expression that shows it; the last is what undoes it.
SETTINGS = {
    "warning filters": (
        "import warnings; warnings.filterwarnings('ignore', message='own')",
        "warnings.filters[0][0], warnings.filters[0][1].pattern",
        "warnings.filters.pop(0)",
    ),
    "a logger's level": (
        "import logging; logging.getLogger('own.part').setLevel('DEBUG')",
        "logging.getLogger('own.part').level",
        "logging.getLogger('own.part').setLevel('NOTSET')",
    ),
    "a logger's file": (
        "import logging; logging.getLogger('own.file').addHandler(logging.FileHandler('/dev/null'))",
        "[h.baseFilename for h in logging.getLogger('own.file').handlers]",
        "logging.getLogger('own.file').handlers.clear()",
    ),
    "a logger by itself": (
        "import logging; logging.getLogger('own.alone').propagate = False",
        "logging.getLogger('own.alone').propagate",
        "logging.getLogger('own.alone').propagate = True",
    ),
    "decimal": (
        "import decimal; decimal.getcontext().prec = 5; decimal.getcontext().traps[decimal.Inexact] = True",
        "decimal.getcontext().prec, decimal.getcontext().traps[decimal.Inexact]",
        "decimal.getcontext().prec = 28; decimal.getcontext().traps[decimal.Inexact] = False",
    ),
    "numpy's print options": (
        "import numpy as np; np.set_printoptions(precision=2, suppress=True)",
        "repr(np.array([1 / 3]))",
        "np.set_printoptions(precision=8, suppress=False)",
    ),
    "numpy's errors": (
        "import numpy as np; np.seterr(over='raise')",
        "np.geterr()['over']",
        "np.seterr(over='warn')",
    ),
    "pandas's options": (
        "import pandas as pd; pd.set_option('display.max_rows', 7)",
        "pd.get_option('display.max_rows')",
        "pd.reset_option('display.max_rows')",
    ),
    "limits and arguments": (
        "import sys, csv; words = list(sys.argv); sys.argv = ['train.py', '--lr=1']; sys.setrecursionlimit(7000); csv.field_size_limit(10**8)",
        "sys.argv == ['train.py', '--lr=1'], sys.getrecursionlimit(), csv.field_size_limit()",
        "sys.argv = words; sys.setrecursionlimit(1000); csv.field_size_limit(131072)",
    ),
    "time zone": (
        "import os, time; os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()",
        "time.tzname, time.localtime(0).tm_hour",
        "import os, time; del os.environ['TZ']; time.tzset()",
    ),
    "dialects of csv": (
        "import csv; csv.register_dialect('own', delimiter=';', quotechar='!')",
        "[(csv.get_dialect(n).delimiter, csv.get_dialect(n).quotechar) for n in csv.list_dialects() if n == 'own']",
        "csv.unregister_dialect('own')",
    ),
    "scikit-learn's output": (
        "import sklearn; sklearn.set_config(transform_output='pandas')",
        "__import__('sklearn').get_config()['transform_output']",
        "import sklearn; sklearn.set_config(transform_output='default')",
    ),
    "matplotlib's parameters": (
        "import matplotlib as mpl; mpl.rcParams['lines.linewidth'] = 4; mpl.rcParams['axes.grid'] = True",
        "mpl.rcParams['lines.linewidth'], mpl.rcParams['axes.grid']",
        "mpl.rcdefaults()",
    ),
}


@pytest.fixture
def pair(eager, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", eager.main)
    empty(eager)
    return eager


@in_turn(name=SETTINGS, first=["home", "gpu"])
def test_a_setting_holds_in_the_next_cell_wherever_it_runs(pair, name, first):
    change, look, undo = SETTINGS[name]
    imports = "import warnings, logging, decimal, sys, csv, time\nimport numpy as np, pandas as pd, matplotlib as mpl\n"
    one, two = (pair.home, pair.gpu) if first == "home" else (pair.gpu, pair.home)
    one(f"{imports}before = repr(({look}))\n{change}\nset = repr(({look}))")
    two(f"{imports}assert repr(({look})) == set != before, ({look})")
    two(undo)
    one(f"assert repr(({look})) == before, ({look})")
    two(f"assert repr(({look})) == before, ({look})")


def accessor(result):
    """Return a cell that registers an accessor, as pandas' own manual shows it."""
    return (
        "import pandas as pd, warnings\nwarnings.simplefilter('ignore')\n"
        "@pd.api.extensions.register_dataframe_accessor('geo')\nclass Geo:\n"
        "    def __init__(self, frame): self._frame = frame\n"
        f"    def center(self): return {result}"
    )


def test_an_accessor_is_there_in_the_next_cell_wherever_it_runs(pair):
    pair.home(f"{accessor('self._frame.a.mean()')}\ndf = pd.DataFrame({{'a': [1, 3]}})")
    pair.gpu("assert df.geo.center() == 2; df.loc[1, 'a'] = 5")
    pair.home("assert df.geo.center() == 3")
    pair.gpu(accessor("'anew'"))
    pair.home("assert df.geo.center() == 'anew'; assert pd.DataFrame.geo is Geo")
    pair.gpu("assert df.geo.center() == 'anew'; assert pd.DataFrame(df).geo.center() == 'anew'")
    pair.gpu("class Geo: 'another class, which nobody registered'")
    with pytest.raises(AttributeError, match="geo"):
        pair.home("df.geo")
    pair.gpu("assert df.geo.center() == 'anew'")


def test_an_accessor_whose_class_has_not_come_names_it(lazy, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", lazy.main)
    empty(lazy)
    lazy.home(f"{accessor('len(self._frame)')}\ndf = pd.DataFrame({{'a': [1, 3]}})")
    with pytest.raises(CellError, match="name 'Geo' is not defined"):
        lazy.gpu("df.geo.center()")
    lazy.gpu("Geo; assert df.geo.center() == 2; df.loc[2, 'a'] = 5")
    lazy.home("assert df.geo.center() == 3")


def test_what_belongs_to_one_process_stays(pair):
    pair.home("import matplotlib\nhere = matplotlib.rcParams._get('backend')")
    pair.gpu("import matplotlib\nmatplotlib.rcParams['backend'] = 'svg'")
    pair.home("assert matplotlib.rcParams._get('backend') == here")


def test_to_set_one_may_import_a_module_that_others_waited_for(monkeypatch):
    """Loading a warning's category imports its module, and an import looks at what waits."""

    def put(values):
        settings.settle()  # as the import does
        done.append(values)

    done = []
    for name in ("warnings", "logging"):
        monkeypatch.setitem(KNOWN, name, replace(KNOWN[name], put=put))
    settings = Settings()
    told = {"warnings": {"a": pickle.dumps(1)}, "logging": {"b": pickle.dumps(2)}}
    settings.apply(told)
    assert sorted(done, key=str) == [{"a": 1}, {"b": 2}]
