"""Shared memory under any Python type, and files: as in one process, cell by cell."""
# ruff: noqa: E501 - one cell a line

import sys

import pytest

from tests.transfer.kinds import each_group, same_as_plain

KINDS = {
    "what views name as their base": [
        "import numpy as np\na = np.arange(6.0); v = a[1:3]; w = v[::-1]; f = np.asfortranarray(np.ones((2, 3))); part = f[:, 1:]\n"
        "d = np.array(['2024-01-01', '2024-01-02'], 'M8[D]'); day = d[1:]; big = np.zeros(300_000); rest = big[5:]",
        "fixed = np.arange(4); open_ = fixed[:2]; fixed.flags.writeable = False; v[0] = 9; part[0, 0] = 5; d[1] = '2025-01-01'; rest[0] = 3",
        "open_[0] = 4; seen = [v.base is a, w.base is a, a.base is None, a.flags.owndata, part.base is f, day.base is d, open_.base is fixed, rest.base is big]\n"
        "seen += [a.tolist(), f.tolist(), d.tolist(), fixed.tolist(), open_.flags.writeable, fixed.flags.writeable, big[5], f.flags.f_contiguous]",
        "a[2] = 7; seen += [w.tolist(), v.base is a, rest.base is big, day[0].item()]",
    ],
    "record array": [
        "import numpy as np\na = np.zeros(4, [('x', 'f8'), ('n', 'i4')])\nr = a.view(np.recarray)",
        "r.x[1] = 2.5\na['n'][2] = 7",
        "r.n[0] = 1; a['x'][3] = 4",
        "seen = a.tolist(), r.tolist(), type(r).__name__, r.x.tolist(), np.shares_memory(a, r)",
    ],
    "what is asked for as what it is": [
        "import numpy as np\na = np.arange(3.0); n = np.arange(3); t = np.dtype('f4'); o = np.array([None, t])",
        "b = np.asarray(a, float); k = np.asarray(n, np.int64); b[0] = 7",
        "seen = [b is a, k is n, t is np.dtype('f4'), o.dtype is np.dtype(object), np.asarray(b, dtype=np.float64) is a]",
        "seen += [np.ascontiguousarray(b, float) is a, a.tolist()]",
    ],
    "one row of a structured array": [
        "import numpy as np\na = np.zeros(3, [('x', 'f8')])\nv = a['x']",
        "v[0] = 1",
        "a[1] = (2.0,)",
        "seen = a.tolist(), v.tolist()",
    ],
    "matrix": [
        "import numpy as np\na = np.arange(4.0).reshape(2, 2)\nm = a.view(np.matrix)",
        "m[0, 0] = 9",
        "a[1, 1] = 8",
        "seen = a.tolist(), (m * m).tolist(), type(m).__name__",
    ],
    "masked array": [
        "import numpy as np\na = np.arange(5.0)\nm = np.ma.MaskedArray(a, [0, 1, 0, 0, 1], copy=False)",
        "m[0] = 10\nm.fill_value = -1",
        "a[2] = 20; m[3] = np.ma.masked",
        "seen = a.tolist(), m.tolist(), m.mask.tolist(), float(m.fill_value), m.sum()",
    ],
    "a view of a masked array": [
        "import numpy as np\nm = np.ma.masked_array(range(6), [0, 1, 0, 0, 0, 0])\nv = m[1:3]",
        "v[1] = 50",
        "m[1] = 5",
        "seen = m.tolist(), v.tolist()",
    ],
    "masked arrays that a function holds": [
        "import numpy as np\nm = np.ma.masked_array([1.0, 2, 3], [0, 1, 0]); n = np.ma.array([1, 2])\n"
        "def held(a=m, b=n): return a, b",
        "m[0] = np.ma.masked; n[1] = 7",
        "m[1] = 5.0; n[0] = np.ma.masked; m.fill_value = -1",
        "held()[1].harden_mask(); m[2] = np.ma.masked; n[0] = 9",
        "seen = m.tolist(), n.tolist(), float(m.fill_value), held()[0] is m, held()[1] is n, n.hardmask, m.mask.tolist(), m.data.tolist()",
    ],
    "masked arrays of one mask": [
        "import numpy as np\none = np.array([True, False, False]); a = np.ma.MaskedArray([1, 2, 3], one, copy=False, keep_mask=False)\n"
        "b = np.ma.MaskedArray([4, 5, 6], a._mask); box = {'a': a, 'b': (b,)}",
        "a[1] = np.ma.masked; a.unshare_mask(); a[0] = 7",
        "b[0] = 8; one[2] = True; c = a.mask",
        "c[2] = True; b.soften_mask(); b[2] = np.ma.masked",
        "seen = a.tolist(), b.tolist(), one.tolist(), box['a'] is a, box['b'][0] is b, c.tolist(), a._sharedmask, b._sharedmask",
    ],
    "arrays of objects": [
        "import numpy as np\npart = [1]; o = np.array([part, 'a', None, 2.5], dtype=object); v = o[1:3]\n"
        "keep = {'o': o}\ndef held(a=o): return a",
        "o[0].append(2); v[0] = 'b'; o[3] = o",
        "keep['o'][2] = part; w = o.reshape(2, 2)",
        "w[0, 1] = (part, o); held()[2].append(3)",
        "v[1] = {'v': v}; p = np.array([o, part, None], dtype=object)[:2]",
        "p[1].append(4); o[1] = p",
        "seen = o is keep['o'] is held() is p[0], part, o[0] is part, o[3] is o, o[1] is p, v[0] is p, v[1]['v'] is v, w.shape, w[1, 1] is o",
    ],
    "an array of objects that is one of many": [
        "import numpy as np\nclass K: pass\nk = K(); k.o = np.array([[1, 2], ['x', k]], dtype=object); t = k.o.T",
        "t[0, 1] = 'y'; k.o[0, 0] = k.o",
        "k.o = k.o.copy(); k.o[0, 1] = 5",
        "t[1, 0] = 6; k.q = t",
        "seen = k.o[1].tolist()[0], k.o[0, 1], t[0, 1], k.q is t, t[1, 0], np.shares_memory(t[0, 0], t), np.shares_memory(t, k.o), k.o[1, 1] is k",
    ],
    "an own class with attributes": [
        "import numpy as np\n"
        "class Info(np.ndarray):\n"
        "    def __new__(cls, data, info=None):\n"
        "        obj = np.asarray(data).view(cls)\n"
        "        obj.info = info\n"
        "        return obj\n"
        "    def __array_finalize__(self, obj):\n"
        "        if obj is not None: self.info = getattr(obj, 'info', None)\n"
        "a = np.arange(4.0)\ni = Info(a, 'metres')",
        "i[0] = 9; i.info += ' a second'",
        "a[1] = 8; j = i[1:]; j.unit = [1]",
        "j[0] = 7; j.unit.append(2)",
        "seen = a.tolist(), i.tolist(), i.info, j.info, j.unit, type(j).__name__",
    ],
    "an own class with its own way": [
        "import numpy as np\n"
        "class Own(np.ndarray):\n"
        "    def __reduce__(self):\n"
        "        f, args, state = super().__reduce__()\n"
        "        return f, args, (state, self.tag)\n"
        "    def __setstate__(self, state):\n"
        "        super().__setstate__(state[0]); self.tag = state[1]\n"
        "o = np.arange(3.0).view(Own); o.tag = 'x'",
        "o[0] = 5",
        "o.tag += 'y'",
        "seen = o.tolist(), o.tag, type(o).__name__",
    ],
    "read-only memory map": [
        "import numpy as np, os, tempfile\n"
        "at = os.path.join(tempfile.mkdtemp(), 'a.bin')\n"
        "np.arange(12.0).tofile(at)\nm = np.memmap(at, 'f8', 'r', shape=(3, 4))\nv = m[1:, ::2]",
        "s = float(m.sum()), v.tolist(), type(m).__name__, m.flags.writeable",
        "t = float(v.sum()), m.flags.writeable, type(v).__name__",
        "seen = s, t, os.path.basename(m.filename or at)",
    ],
    "closed files": [
        "import tempfile, os\nat = os.path.join(tempfile.mkdtemp(), 'a.txt')\n"
        "with open(at, 'w', encoding='utf-8') as f: f.write('one')\n"
        "with open(at, 'rb') as g: g.read()",
        "with open(at) as h: text = h.read()\nk = f.closed, g.closed, f.mode, f.encoding, g.mode",
        "seen = k, h.closed, h.mode, text, type(f).__name__, type(g).__name__, f.name == at",
    ],
    "a closed file under a comprehension's name": [
        "import tempfile, os\nat = os.path.join(tempfile.mkdtemp(), 'a.txt')\n"
        "with open(at, 'w') as f: f.write('one')",
        "squares = [f * f for f in range(3)]",
        "total = sum(f for f in squares)",
        "seen = squares, total, f.closed",
    ],
}


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of np.matrix
@each_group(KINDS)
def test_memory_is_shared_as_in_one_process(group, eager, lazy):
    same_as_plain(KINDS, group, eager, lazy)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="numpy refuses in a plain process, too")
def test_an_array_in_an_attribute_can_be_resized_in_place(pair):
    """numpy refuses where anything but its one holder refers to the array, weakly too."""
    pair.home("import numpy as np\nclass K: pass\nk = K(); k.a = np.arange(3.0)")
    pair.gpu("k.a.resize(5)")
    pair.home("k.a.resize(6)")
    pair.gpu("k.a.resize(4)")
    pair.home("seen = k.a.tolist()")
    assert pair.ns["seen"] == [0.0, 1.0, 2.0, 0.0]
