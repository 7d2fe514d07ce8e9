"""numpy, pandas, scikit-learn, matplotlib and what is refused, made on one side and used on both."""

# ruff: noqa: E501 - one notebook a line

import re

import pytest

from gpulease.errors import GPULeaseError
from tests.transfer.kinds import Kind, each_group, empty, same_as_plain

NP = "import numpy as np\n"
PD = "import numpy as np, pandas as pd\n"
SK = "import numpy as np\nnp.random.seed(3)\n"
ARRAY = "(x.tolist(), str(x.dtype), x.shape, x.flags.writeable)"

KINDS = {
    "dtypes": Kind(NP + "x = [np.ones(2, t) for t in ('?', 'i1', 'u8', 'f2', 'f4', 'c16', 'S3', 'U2', 'M8[s]', 'm8[D]', '>i4')]",
                   "x[1][0] += 1", "[(a.tolist(), a.dtype.str) for a in x]"),
    "a class of attrs": Kind("import attr, attrs\n@attrs.define\nclass P:\n    x: int = attrs.field(converter=int, validator=attrs.validators.gt(0))\n    tags: list = attrs.field(factory=list)\n@attr.s(frozen=True, hash=True)\nclass Q:\n    a = attr.ib()\n    b = attr.ib(default=attr.Factory(lambda self: self.a + 1, takes_self=True))\nx = P('1'); q = Q(3); t = x.tags",
                             "x.tags.append(P(2)); q = attrs.evolve(q, a=q.a + 1)", "(x, q, t is x.tags, attrs.asdict(x), {q: 1}[q], attrs.fields(P).x.name)"),
    "a soup and its tags": Kind("import bs4\nx = bs4.BeautifulSoup('<p>a</p><p>b</p>', 'html.parser')\nps = x.find_all('p')", "ps[0].string = ps[0].text + '!'; ps[1]['id'] = ps[0].text", "(str(x), ps[0].parent is x, x.p is ps[0])"),
    "what is noted on a library's object": Kind("import requests\nfrom PIL import Image\nx = Image.new('L', (2, 2)); x.label = ['cat']; s = requests.Session(); s.mine = x.label", "x.label.append('dog'); s.more = len(x.label); x.putpixel((0, 0), 7)", "(x.label, s.mine is x.label, getattr(s, 'more', 0), x.getpixel((0, 0)), s.headers['Accept'])"),
    "a table of SQLAlchemy": Kind("import sqlalchemy as sa\nm = sa.MetaData(); x = sa.Table('t', m, sa.Column('id', sa.Integer, primary_key=True)); q = sa.select(x.c.id)", "q = q.where(x.c.id > 1); m.info['n'] = m.info.get('n', 0) + 1", "(str(q), m.tables['t'] is x, x.c.id.table is x, m.info)"),
    "structured": Kind(NP + "x = np.zeros(2, [('a', 'i4'), ('b', 'f8', (2,))])", "x['a'] += 1; x[0]['b'][1] = 5", ARRAY),
    "recarray": Kind(NP + "x = np.rec.array([(1, 2.0)], dtype=[('a', int), ('b', float)])", "x.a += 1", "(x.a.tolist(), type(x).__name__)"),
    "a drawing in an image": Kind("from PIL import Image, ImageDraw\nim = Image.new('RGB', (4, 4), 'red')\nx = ImageDraw.Draw(im, 'RGBA'); x.fontmode = '1'\nn = 0",
                              "n += 1; x.point((n, 0), fill=(n, 2, 3, 200))", "(im.tobytes(), x._image is im, x.mode, x.fontmode)"),
    "a polynomial and its coefficients": Kind(NP + "x = np.polynomial.Chebyshev([1., 2.]); c = x.coef; old = np.poly1d(c)", "c[0] += 1", "(x(0.5), old(1), c is x.coef, sorted(vars(x)))"),
    "a ufunc of a function": Kind(NP + "n = [1]\nx = np.frompyfunc(lambda a, b: a + b + n[0], 2, 1)\nv = np.vectorize(lambda a: a + n[0], otypes=[float])", "n[0] += 1; v([1])", "(x(1, 2), x.nin, v([1, 2]).tolist())"),
    "object dtype": Kind(NP + "l = [1]\nx = np.array([l, None, 'a'], dtype=object)", "x[0].append(2)", "(x.tolist(), x[0] is l)"),
    "object dtype holding instances": Kind(NP + "class C: n = 0\nc = C()\nx = np.array([c, c], dtype=object)", "c.n += 1", "(x[0] is x[1], x[0] is c, c.n)"),
    "fortran order": Kind(NP + "x = np.asfortranarray(np.arange(6.).reshape(2, 3))", "x[0, 1] += 1", "(x.tolist(), x.flags.f_contiguous, x.strides)"),
    "view": Kind(NP + "b = np.arange(10)\nx = b[2:8:2]", "x += 1; b[4] += 10", "(x.tolist(), b.tolist(), np.shares_memory(x, b))"),
    "reversed view": Kind(NP + "b = np.arange(5)\nx = b[::-1]", "x[0] += 1", "(x.tolist(), b.tolist())"),
    "transposed view": Kind(NP + "b = np.arange(6).reshape(2, 3)\nx = b.T", "x[0, 1] += 1; b[0, 0] += 1", "(x.tolist(), b.tolist())"),
    "view of other dtype": Kind(NP + "b = np.arange(4, dtype='i8')\nx = b.view('u1')", "x[1] += 1", "(b.tolist(), x.sum())"),
    "field view": Kind(NP + "b = np.zeros(3, [('a', 'i4'), ('b', 'f8')])\nx = b['b']", "x[1] += 1", "(b.tolist(), x.tolist())"),
    "large views": Kind(NP + "b = np.arange(200_000.)\nx = b[5:100_000]\nz = b[50_000:]", "x[60_000] += 1; z[0] += 1", "(x.sum(), z.sum(), b.sum())"),
    "view without its base": Kind(NP + "x = np.arange(200_000.)[10:20]", "x[0] += 1", "x.tolist()"),
    "broadcast": Kind(NP + "x = np.broadcast_to(np.arange(3), (2, 3))", "pass", "(x.tolist(), x.flags.writeable)"),
    "read only": Kind(NP + "x = np.arange(3); x.flags.writeable = False", "pass", ARRAY),
    "zero length": Kind(NP + "x = np.empty((0, 3)); z = np.array(5)", "z += 1", "(x.shape, z.tolist(), z.shape)"),
    "masked": Kind(NP + "x = np.ma.array([1, 2, 3], mask=[0, 1, 0])", "x[0] += 1", "(x.tolist(), x.mask.tolist())"),
    "masked among what pickles unsteadily": Kind(NP + "import io\nclass C: pass\nx = C(); x.m = np.ma.array([1., 2.], mask=[0, 1]); x.o = np.ma.array([[1], 'a'], mask=[1, 0], dtype=object); x.io = io.StringIO('a')\nx.f = lambda v=x.m: v",
                "x.m[0] += 1; x.m.mask[1] = False; x.o.data[0].append(2)", "(x.m.tolist(), x.m.mask.tolist(), x.o.data.tolist(), x.f() is x.m)"),
    "grid search": Kind(SK + "from sklearn.linear_model import SGDClassifier\nfrom sklearn.model_selection import GridSearchCV\nX = np.random.rand(40, 3); t = (X[:, 0] > .5).astype(int)\n"
                "x = GridSearchCV(SGDClassifier(random_state=0), {'alpha': [1e-3, 1e-2]}, cv=2).fit(X, t)", "x.n = getattr(x, 'n', 0) + 1",
                "(x.best_params_, x.cv_results_['param_alpha'].tolist(), x.predict(X).sum(), getattr(x, 'n', 0))"),
    "subclass": Kind(NP + "class A(np.ndarray): pass\nx = np.arange(3).view(A)", "x[0] += 1", "(x.tolist(), type(x) is A)"),
    "scalar": Kind(NP + "x = np.float32(0.1)", "x = x + np.float32(1)", "(repr(x), x.dtype.str)", same=False),
    "np.nan": Kind(NP + "x = np.nan\nz = [np.nan]", "pass", "(x is np.nan, np.nan in z)"),
    "dtype and ufunc": Kind(NP + "x = [np.dtype('f4'), np.add, np.linalg.norm, np.float64]", "pass", "(x[1](1, 2), x[3](1))"),
    "array in an instance": Kind(NP + "class C: pass\nx = C(); x.w = np.zeros(3); w = x.w", "x.w += 1; w[0] += 1", "(x.w.tolist(), x.w is w)"),
    "array grown": Kind(NP + "x = np.zeros(3)", "x = y = box['in'][0] = np.append(x, len(x))", "x.tolist()"),
    "Generator": Kind(NP + "x = np.random.default_rng(3)", "r = x.random()", "x.bit_generator.state['state']"),
    "RandomState": Kind(NP + "x = np.random.RandomState(3)", "r = x.rand()", "x.get_state()[2]"),
    "small ints": Kind(NP + "x = np.array([1, 2])", "x[0] += 1", "x.tolist()"),
    "frame": Kind(PD + "x = pd.DataFrame({'i': [1, 2], 'f': [.5, np.nan], 's': ['a', None], 'o': [[1], {}], 't': pd.to_datetime(['2024-01-01', None]), 'b': [True, False]})",
                  "x.loc[0, 'i'] += 1; x['n' + str(x.shape[1])] = x.i * 2", "(x.to_dict('list'), [str(t) for t in x.dtypes])"),
    "categorical": Kind(PD + "x = pd.DataFrame({'c': pd.Categorical(['a', 'b'], ordered=True, categories=['b', 'a'])})", "x.loc[0, 'c'] = 'b'", "(x.c.tolist(), x.c.cat.categories.tolist(), x.c.cat.ordered)"),
    "a styler": Kind(PD + "d = pd.DataFrame({'a': [1., 2.], 'b': list('xy')})\nx = d.style.format({'a': lambda v: f'<{v:.1f}>'}).apply(lambda c: ['color: red'] * len(c))", "d.loc[0, 'a'] += 1",
                     "(x.data is d, '<' in x.to_html(escape=False), x.to_html().count('red'), d.a.tolist())"),
    "groups by a function": Kind(PD + "d = pd.DataFrame({'a': [1., 2., 3.], 'c': pd.Categorical(list('aba'))})\nx = d.groupby(lambda i: i % 2); y = d.groupby('c', observed=True); z = d.c.cat; r = d.a.rolling(2); s = pd.Series(['q']).str", "d.loc[0, 'a'] += 1",
                     "(d.a.tolist(), x.ngroups, y.size().tolist(), z.codes.tolist(), s.upper().tolist(), len(r.sum()))"),
    "multi-index": Kind(PD + "x = pd.DataFrame({'v': [1, 2]}, index=pd.MultiIndex.from_tuples([('a', 1), ('b', 2)], names=['p', 'q']))", "x.loc[('a', 1), 'v'] += 1", "(x.v.to_dict(), x.index.names)"),
    "nullable": Kind(PD + "x = pd.DataFrame({'i': pd.array([1, None], dtype='Int64'), 's': pd.array(['a', None], dtype='string')})", "x.loc[1, 'i'] = len(x)", "(x.to_dict('list'), [str(t) for t in x.dtypes])"),
    "series of a frame": Kind(PD + "d = pd.DataFrame({'a': [1, 2]})\nx = d['a']", "x.iloc[0] += 1; d.loc[1, 'a'] += 5", "(x.tolist(), d.a.tolist())"),
    "index and interval": Kind(PD + "x = [pd.RangeIndex(3), pd.Timestamp('2024'), pd.Timedelta('1h'), pd.interval_range(0, 2), pd.NA, pd.NaT, pd.Period('2024-01')]", "pass", "(repr(x), x[4] is pd.NA, x[5] is pd.NaT)"),
    "frame attrs and flags": Kind(PD + "x = pd.DataFrame({'a': [1]}); x.attrs['n'] = [1]", "x.attrs['n'].append(2)", "x.attrs"),
    "groupby": Kind(PD + "d = pd.DataFrame({'a': [1, 1, 2], 'b': [1, 2, 3]})\nx = d.groupby('a')", "pass", "x.b.sum().to_dict()"),
    "estimator": Kind(SK + "from sklearn.linear_model import LogisticRegression\nX = np.random.rand(40, 3); t = (X[:, 0] > .5).astype(int)\nx = LogisticRegression()",
                      "x.C *= 2; x.fit(X, t)", "(x.C, hasattr(x, 'coef_') and x.coef_.round(8).tolist())"),
    "forest by global seed": Kind(SK + "from sklearn.ensemble import RandomForestClassifier\nX = np.random.rand(40, 3); t = (X[:, 0] > .5).astype(int)\nx = RandomForestClassifier(5)",
                                  "x.fit(X, t)", "(hasattr(x, 'estimators_') and x.predict_proba(X[:5]).tolist(), np.random.get_state()[2])"),
    "pipeline": Kind(SK + "from sklearn.pipeline import make_pipeline\nfrom sklearn.preprocessing import StandardScaler, FunctionTransformer\nfrom sklearn.linear_model import SGDClassifier\n"
                     "def double(v): return v * 2\nX = np.random.rand(40, 3); t = (X[:, 0] > .5).astype(int)\nx = make_pipeline(FunctionTransformer(double), StandardScaler(), SGDClassifier())",
                     "x.fit(X, t)", "(hasattr(x[-1], 'coef_') and x[-1].coef_.tolist())"),
    "own estimator": Kind(SK + "from sklearn.base import BaseEstimator, ClassifierMixin, clone\nclass E(ClassifierMixin, BaseEstimator):\n    def __init__(self, a=1): self.a = a\n    def fit(self, X, y): self.m_ = X.mean(); return self\nx = E()",
                          "x.a += 1; x.fit(np.arange(3.), None)", "(repr(x), getattr(x, 'm_', None), repr(clone(x)))"),
    "sparse": Kind("import scipy.sparse as sp\nx = sp.csr_matrix([[0, 1], [2, 0]])", "x.data += 1", "x.toarray().tolist()"),
    "function whose globals have a name": Kind("space = {'k': 2}\nexec('def f(v): return v * k', space)\nx = space['f']", "space['k'] += 1", "(x(2), x.__globals__ is space)"),
    "function that writes globals of its own": Kind("def m():\n    s = {}\n    exec('n = 0\\ndef up():\\n    global n; n += 1; return n', s)\n    return s['up']\nx = m()", "x()", "x.__globals__['n']"),
    "function that fills a list of its own globals": Kind("def m():\n    s = {'k': []}\n    exec('def f(v): k.append(v)', s)\n    return s['f']\nx = m()", "x(1)", "x.__globals__['k']"),
    "raises in reduce": Kind("class C:\n    def __reduce__(self): raise RuntimeError('not me')\nx = C(); x.n = 1", "x.n += 1", "x.n"),
    "a reduction that does not load": Kind("class C:\n    def __init__(self, a): self.a = a\n    def __reduce__(self): return (C, ())\nx = C(1)", "x.a += 1", "x.a"),
    "nested deeply": Kind("x = end = [0]\nfor _ in range(6_000): x = [x]", "end[0] += 1", "end"),
}  # fmt: skip

#: How x is made, and the word that the refusal must hold.
REFUSED = {
    "generator": ("x = (i for i in range(3))", "generator"),
    "memoryview in a list": ("x = [1, memoryview(bytearray(3))]", "memoryview"),
    "held lock": ("import threading\nx = threading.Lock(); x.acquire()", "lock"),
    "held condition": ("import threading\nx = threading.Condition(); x.acquire()", "condition"),
    "queue": ("import queue\nx = queue.Queue()", "queue"),
    "executor": ("import concurrent.futures\nx = concurrent.futures.ThreadPoolExecutor(1)", "executor"),
    "thread local": ("import threading\nx = threading.local()", "local"),
    "open file": ("import os\nx = open(os.devnull)", "file"),
    "socket": ("import socket\nx = socket.socket()", "socket"),
    "coroutine": ("async def c(): pass\nx = c()", "coroutine"),
    "frame": ("import inspect\nx = inspect.currentframe()", "frame"),
    "memoryview": ("x = memoryview(bytearray(3))", "memoryview"),
    "type of the interpreter": ("x = type(iter([]))", "list_iterator"),
    "dict iterator": ("x = iter({1: 2})", "iterator"),
    "sqlite": ("import sqlite3\nx = sqlite3.connect(':memory:')", "Connection"),
    "subprocess": ("import subprocess\nx = subprocess.Popen(['true']); x.wait()", ""),
}  # fmt: skip


@each_group(KINDS)
def test_a_kind_made_at_home_and_away(group, eager, lazy):
    same_as_plain(KINDS, group, eager, lazy)


@pytest.mark.parametrize("kind", REFUSED)
def test_a_refused_kind_stops_only_the_cell_that_needs_it(kind, eager):
    make, word = REFUSED[kind]
    empty(eager)
    eager.home(f"n = [1]\n{make}")
    eager.gpu("n.append(2)")
    with pytest.raises(GPULeaseError) as refusal:
        eager.gpu("x")
    assert refusal.value.reason == "cannot_move"
    assert re.search(r"\bx\b", str(refusal.value)), refusal.value
    assert word in str(refusal.value)
    eager.home("assert n == [1, 2] and x is x\ntry: x.close()\nexcept Exception: pass\ndel x, n")
    eager.gpu(f"n = [1]\n{make}")
    eager.home("n.append(3)")
    with pytest.raises(GPULeaseError) as refusal:
        eager.home("x")
    assert re.search(r"\bx\b", str(refusal.value)), refusal.value
    eager.gpu("assert n == [1, 3] and x is x\ntry: x.close()\nexcept Exception: pass\ndel x")
    eager.home("assert n == [1, 3]")


def test_a_class_of_attrs_carries_nothing_of_the_namespace_that_its_methods_copied(pair):
    """The copy holds all that the notebook had then: here something that cannot travel."""
    pair.home("view = memoryview(b'x'); big = [1]; import attrs; import builtins as __builtins__")
    pair.home(
        "@attrs.define\nclass P:\n    x: int = 0\n    tags: list = attrs.Factory(list)\np = P()"
    )
    pair.gpu("p.tags.append(P(2)); big.append(2)")
    pair.home("assert p == P(0, [P(2)]) and big == [1, 2]")
    assert not pair.last.notes
