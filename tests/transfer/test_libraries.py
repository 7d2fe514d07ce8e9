"""The libraries students use: what goes away comes back the same."""

import importlib.machinery
import sys
import types

from gpulease.sides.libraries import library, whole_library


def test_an_estimator_trains_beside_the_gpu(pair):
    pair.home(
        "import numpy as np\nfrom sklearn.datasets import load_digits\n"
        "from sklearn.linear_model import SGDClassifier\n"
        "from sklearn.pipeline import make_pipeline\n"
        "from sklearn.preprocessing import StandardScaler\n"
        "np.random.seed(4)\nX, y = load_digits(return_X_y=True)\n"
        "model = make_pipeline(StandardScaler(), SGDClassifier(max_iter=20, tol=None))\n"
        "alias = model"
    )
    pair.gpu("model.fit(X[:500], y[:500])\nscore = model.score(X[500:700], y[500:700])")
    pair.home("again = model.score(X[500:700], y[500:700])")
    assert pair.ns["score"] == pair.ns["again"] > 0.5
    assert pair.ns["alias"] is pair.ns["model"]
    plain = {}
    exec(
        "import numpy as np\nfrom sklearn.datasets import load_digits\n"
        "from sklearn.linear_model import SGDClassifier\n"
        "from sklearn.pipeline import make_pipeline\n"
        "from sklearn.preprocessing import StandardScaler\n"
        "np.random.seed(4)\nX, y = load_digits(return_X_y=True)\n"
        "model = make_pipeline(StandardScaler(), SGDClassifier(max_iter=20, tol=None))\n"
        "model.fit(X[:500], y[:500])\nscore = model.score(X[500:700], y[500:700])",
        plain,
    )
    assert plain["score"] == pair.ns["score"]


def test_frames_keep_their_values_and_stay_apart(pair):
    pair.home(
        "import pandas as pd\ndf = pd.DataFrame({'a': range(5), 't': list('vwxyz')})\n"
        "s = df['a']\ndf.attrs['note'] = [1]"
    )
    pair.gpu("df['b'] = df.a * 2\ns.iloc[0] = 99\ntimes = pd.date_range('2024', periods=3)")
    pair.home("df.loc[1, 'a'] = 7")
    assert pair.ns["df"]["a"].tolist() == [0, 7, 2, 3, 4]
    assert pair.ns["df"]["b"].tolist() == [0, 2, 4, 6, 8]
    assert pair.ns["s"].tolist() == [99, 1, 2, 3, 4]
    assert pair.ns["df"].attrs == {"note": [1]}
    assert str(pair.ns["times"][0]) == "2024-01-01 00:00:00"
    pair.gpu("assert df.loc[1, 'a'] == 7")


def test_arrays_arrive_as_they_were(pair):
    pair.home(
        "import numpy as np\nf = np.asfortranarray(np.arange(6.0).reshape(2, 3))\n"
        "r = np.arange(3); r.flags.writeable = False\nd = np.array(['2024-01-01'], 'M8[D]')\n"
        "o = np.array([[1], None], dtype=object)\ne = np.empty((0, 3))\nz = np.array(5)\n"
        "v = np.arange(200_000.0); w = v[10:20]; back = v[::-1]"
    )
    pair.gpu(
        "assert f.flags.f_contiguous and not r.flags.writeable and d.dtype == 'M8[D]'\n"
        "assert o[0] == [1] and e.shape == (0, 3) and z.shape == () and v.flags.writeable\n"
        "w[0] = -1; f[0, 0] = 8; o[0].append(2)\nassert back[-11] == -1"
    )
    pair.home("assert v[10] == -1 and back[-11] == -1 and f[0, 0] == 8 and o[0] == [1, 2]")


def test_a_library_that_another_thread_imports_is_not_asked(monkeypatch):
    """In the middle of its import it lacks what it has at its end."""
    made = types.ModuleType("halfway")
    made.__spec__ = importlib.machinery.ModuleSpec("halfway", None)
    made.__spec__._initializing = True
    monkeypatch.setitem(sys.modules, "halfway", made)
    assert library("halfway") is made
    assert whole_library("halfway") is None
    made.__spec__._initializing = False
    assert whole_library("halfway") is made
