"""Weak references and containers of them: as in one process, cell by cell, or refused by name."""
# ruff: noqa: E501 - one cell a line

import pytest

from gpulease.errors import GPULeaseError
from tests.transfer.kinds import each_group, same_as_plain

KINDS = {
    "references, sets and dictionaries": [
        "import weakref\n"
        "class A:\n"
        "    seen = weakref.WeakSet(); by = weakref.WeakValueDictionary()\n"
        "    def __init__(s, n): s.n = n; A.seen.add(s); A.by[n] = s\n"
        "    def m(s): return s.n\n"
        "x, y = A(1), A(2); meta = weakref.WeakKeyDictionary({x: ['about x'], A: 'class'})\n"
        "r = weakref.ref(x); w = weakref.WeakMethod(x.m); dead = weakref.ref(A(9)); box = {'r': r, 'y': y}",
        "z = A(3); meta[x].append(1); meta[z] = 'z'; seen = [r() is x, w()(), dead() is None, sorted(a.n for a in A.seen), A.by[3] is z, meta[A], box['r']() is x]",
        "del z, y; seen += [sorted(a.n for a in A.seen), box['y'] in A.seen, [k.n for k in meta if k is not A]]",
        "box.clear(); x.n = 7; seen += [r().n, sorted(a.n for a in A.seen), w()(), meta[x], len(A.by)]",
        "del x; seen += [r() is None, len(A.seen), len(A.by), len(meta), w() is None]",
        "seen += [r() is None, len(A.seen), len(A.by), len(meta), w() is None, dead() is None]",
    ],
    "a subject and who watches it": [
        "import weakref\n"
        "class Watchers(weakref.WeakSet): note = 'mine'\n"
        "class Subject:\n"
        "    def __init__(s): s.watchers = Watchers(); s.watchers.calls = 0\n"
        "    def attach(s, o): s.watchers.add(o); o.subject = weakref.ref(s)\n"
        "    def set(s, v):\n"
        "        s.watchers.calls += 1\n"
        "        for o in s.watchers: o.log.append(v)\n"
        "class Watcher:\n"
        "    def __init__(s): s.log = []\n"
        "sub = Subject(); o = Watcher(); sub.attach(o); keep = [o]",
        "sub.set(1); p = Watcher(); sub.attach(p)",
        "sub.set(2); del p",
        "sub.set(3); seen = [o.log, keep[0] is o, len(sub.watchers), o.subject() is sub, sub.watchers.calls]",
        "o.subject().set(4); seen += [list(o.log), type(sub.watchers).__name__, sub.watchers.note]",
    ],
    "nothing but what a container refers to": [
        "import weakref\nclass A: pass\nx, y = A(), A(); s = weakref.WeakSet([x]); k = weakref.WeakKeyDictionary(); v = weakref.WeakValueDictionary(); w = weakref.WeakSet(); w.tag = 0",
        "s.add(y); k[x] = 1; v['a'] = x; seen = [len(s)]",
        "seen += [y in s, k[x], v['a'] is x]; s.remove(x); k[x] = 2; v['a'] = y; w.tag = 1",
        "seen += [x in s, y in s, k[x], v['a'] is y, w.tag]; s.clear(); del k[x], v['a']",
        "seen += [len(s), len(k), len(v)]",
    ],
    "proxies": [
        "import weakref\nclass A: n = 1\nx = A(); p = weakref.proxy(x); box = {'p': p}; q = weakref.proxy(A())",
        "p.n = 2; seen = [x.n, box['p'] is p]",
        "x.n = 3; seen += [p.n, type(p).__name__, box['p'].n]",
        "del x\ntry: p.n\nexcept ReferenceError: seen.append('gone')",
        "try: q.n\nexcept ReferenceError: seen.append('gone')",
    ],
    "singledispatch over classes of the notebook": [
        "import functools\nclass Square: pass\nsquare = Square()",
        "@functools.singledispatch\ndef show(x): return 'any'\n"
        "@show.register\ndef _(x: int): return 'number'\n"
        "@show.register\ndef _(x: Square): return 'square'\n"
        "seen = [show(1), show(square), show('')]",
        "@show.register(str)\ndef _(x): return 'text'\nseen.append((show(1), show(square), show('')))",
        "seen.append((show(1), show(square), show(''), show.dispatch(Square)(square)))",
    ],
}  # fmt: skip


@each_group(KINDS)
def test_weak_objects_are_as_in_one_process(group, eager, lazy):
    same_as_plain(KINDS, group, eager, lazy)


@pytest.mark.parametrize(
    ("made", "it"),
    [
        ("weakref.ref(sys.hidden)", "r()"),
        ("weakref.WeakSet([sys.hidden])", "list(r)[0]"),
        ("weakref.proxy(sys.hidden)", "r"),
    ],
    ids=["ref", "set", "proxy"],
)
def test_what_no_variable_holds_lives_on(made, it, pair, monkeypatch):
    monkeypatch.setattr("sys.hidden", None, raising=False)
    pair.home("import weakref, sys, gc\nclass A: n = 1\nsys.hidden = A()")
    pair.home(f"r = {made}")
    pair.gpu(f"gc.collect(); {it}.n += 1")
    assert pair.home("gc.collect(); sys.hidden.n") == 2
    pair.gpu(f"{it}.n += 1")
    assert pair.home(f"sys.hidden.n, {it}.n") == (3, 3)


def test_a_weak_reference_with_a_callback_is_refused_by_name(pair):
    pair.home("import weakref\nclass A: pass\nx = A(); r = weakref.ref(x, print)")
    with pytest.raises(GPULeaseError, match=r"r cannot travel.*a weak reference with a callback"):
        pair.gpu("r")
