"""Objects that show an array's memory and are no arrays: as in one process, cell by cell."""
# ruff: noqa: E501 - one cell a line

import pytest

from gpulease.errors import GPULeaseError
from tests.transfer.kinds import each_group, play, same_as_plain

PANDAS = "import numpy as np, pandas as pd\n"
NUMPY = "import numpy as np\n"
PILLOW = "import numpy as np\nfrom PIL import Image\n"


def cells(make, look, *changes):
    record = f"seen.append(repr(({look})))"
    each = [f"{record}\n{change}\n{record}" for change in changes]
    return [f"seen = []\n{make}", *each, record]


KINDS = {
    "frame over an array": cells(
        PANDAS + "a = np.arange(6.0).reshape(3, 2)\nd = pd.DataFrame(a, copy=False)",
        "a.tolist(), d.values.tolist()",
        "a[0, 0] = 9", "d.iloc[1, 1] = -5", "a[2, 0] = 7", "d.iloc[0, 1] = 11",
    ),
    "frames that are copied on write, over an array": cells(
        PANDAS + "a = np.arange(6.0).reshape(3, 2)\nd = pd.DataFrame(a, copy=False)\ns = d[0]\ne = d[:]",
        "a.tolist(), d.values.tolist(), s.tolist(), e.values.tolist()",
        "a[0, 0] = 9", "s.iloc[1] = -5", "a[2, 0] = 7", "d.iloc[0] = 3", "a[1] = 6", "e.iloc[0, 0] = 5", "a[2] = 2",
    ),
    "frames alone": cells(
        PANDAS + "d = pd.DataFrame({'a': [1, 2, 3], 'b': [3.0, 4, 5]})\ns = d['a']\ne = d[['b']]\nf = d[:2]",
        "d.values.tolist(), s.tolist(), e.values.tolist(), f.values.tolist()",
        "d.iloc[0, 0] = 9", "s.iloc[0] = 5", "e.iloc[0, 0] = 7", "f.iloc[0, 1] = 8",
    ),
    "frame with a column beside the array": cells(
        PANDAS + "a = np.arange(6.0).reshape(3, 2)\nd = pd.DataFrame(a, copy=False, columns=list('xy'))\nd['z'] = [1, 2, 3]\nv = d[['x']]",
        "a.tolist(), d.values.tolist(), v.values.tolist()",
        "a[0, 0] = 9", "d.loc[1, 'y'] = -5", "a[2, 0] = 7", "d.loc[0, 'z'] = 11", "v.loc[0, 'x'] = 3", "a[0, 0] = 4",
    ),
    "values of a frame, and a series of it": cells(
        PANDAS + "d = pd.DataFrame({'a': np.arange(3.0)})\nv = d['a'].to_numpy()\ns = d['a']",
        "d.a.tolist(), v.tolist(), v.flags.writeable, s.tolist()",
        "d.loc[0, 'a'] = 9", "d.loc[1, 'a'] = 8; s.iloc[2] = 5",
    ),
    "frame over a bytearray": cells(
        PANDAS + "b = bytearray(24)\nd = pd.DataFrame(np.frombuffer(b), copy=False)",
        "b.hex(), d.values.tolist()",
        "d.iloc[0, 0] = 1.5", "b[8:16] = b[0:8]", "d.iloc[2, 0] = 2.5",
    ),
    "frame of objects": cells(
        PANDAS + "a = np.array([[1, 'x', [2]]], dtype=object)\nd = pd.DataFrame(a, copy=False, dtype=object)",
        "a.tolist(), d.values.tolist()",
        "a[0, 0] = 9", "d.iloc[0, 1] = 3", "a[0, 2] = 7",
    ),
    "index and series over an array": cells(
        PANDAS + "a = np.arange(4.0)\ni = pd.Index(a, copy=False, name='n')\ns = pd.Series(i, copy=False)\nv = a[1:]",
        "a.tolist(), s.tolist(), i.tolist(), i.name, v.tolist()",
        "a[0] = 9", "s.iloc[1] = 5", "a[2] = 7", "v[0] = 8",
    ),
    "index of times over an array": cells(
        PANDAS + "a = np.arange(4).astype('M8[ns]')\ni = pd.DatetimeIndex(a, copy=False)",
        "a.tolist(), i.tolist()",
        "a[0] = a[3]", "a[2] = a[3]",
    ),
    "series with missing values over two arrays": cells(
        PANDAS + "a = np.arange(3)\nm = np.zeros(3, bool)\ns = pd.Series(pd.arrays.IntegerArray(a, m, copy=False), copy=False)",
        "a.tolist(), s.tolist(), m.tolist()",
        "a[0] = 9", "m[1] = True", "s.iloc[2] = 4",
    ),
    "views of an array of objects": cells(
        NUMPY + "a = np.array([[1, 'x'], [[2], 3]], dtype=object)\nv = a.T\nw = a[:, 1]\nr = a[::-1, 0]",
        "a.tolist(), v.tolist(), w.tolist(), r.tolist(), a[1, 0] is v[0, 1]",
        "v[0, 1] = 9", "a[1, 1] = [3]", "w[1].append(7)", "r[1] = 5",
    ),
    "rows of a structured array": cells(
        NUMPY + "a = np.zeros(3, [('x', 'f8'), ('n', 'i4')])\nr = a[1]\nq = a.view(np.recarray)[2]\no = np.zeros(2, a.dtype)[0]",
        "a.tolist(), r.item(), q.item(), type(q).__name__, q.x, o.item()",
        "a['x'][1] = 9; a['x'][2] = 3", "r['n'] = 4; o['x'] = 2", "a[1] = (5.0, 6)", "q.n = 12; o['n'] = 3",
    ),
    "image over an array": cells(
        PILLOW + "a = np.zeros((2, 2, 4), 'u1')\ni = Image.fromarray(a)\nj = Image.fromarray(a)\ni.info['x'] = [1]",
        "a.tolist(), i.tobytes().hex(), j.tobytes().hex(), i.info, i.readonly",
        "a[0, 0] = 9", "a[1] = 8", "i.putpixel((0, 0), (1, 2, 3, 4))", "a[:] = 1",
    ),
    "image of numbers over an array": cells(
        PILLOW + "a = np.zeros((2, 2), 'f4')\ni = Image.fromarray(a)",
        "a.tolist(), i.tobytes().hex(), i.mode",
        "a[0, 0] = 9", "a[1] = 8", "i.putpixel((0, 0), 3)", "a[:] = 1",
    ),
    "image with a palette over a bytearray": cells(
        PILLOW + "b = bytearray(4)\ni = Image.frombuffer('P', (2, 2), b, 'raw', 'P', 0, 1)\ni.putpalette([1, 2, 3, 4, 5, 6])",
        "b.hex(), i.tobytes().hex(), i.getpalette()",
        "b[0] = 9", "b[1] = 8", "b[3] = 1",
    ),
}  # fmt: skip

REFUSED = {
    "the buffer of a BytesIO": NUMPY
    + "import io\nb = io.BytesIO(bytes(16))\na = np.frombuffer(b.getbuffer())",
    "a writable memory map": NUMPY + "import mmap\na = np.frombuffer(mmap.mmap(-1, 16))",
    "a ctypes array": "import numpy as np, ctypes\nc = (ctypes.c_double * 3)(1, 2, 3)\na = np.frombuffer(c)",
    "a view of an array of StringDType": NUMPY + "b = np.array(['a', 'b'], dtype='T')\na = b[1:]",
    "a ctypes object over memory of something else": (
        "import ctypes\nclass S(ctypes.Structure):\n  _fields_ = [('x', ctypes.c_double)]\n"
        "b = bytearray(8)\na = S.from_buffer(b)"
    ),
}


@each_group(KINDS)
def test_memory_that_an_object_shows_is_shared(group, eager, lazy):
    same_as_plain(KINDS, group, eager, lazy)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_stay_shared_is_refused(kind, lazy):
    with pytest.raises(GPULeaseError, match=f"^a(, [bc])? cannot travel.*{kind}"):
        play(lazy, [REFUSED[kind], "a"], beside_gpu=False)
