"""What is put into a container that is there already makes it what a plain interpreter has."""

import pickle
from collections import Counter, OrderedDict, defaultdict, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.transfer.values.kinds import containers
from tests.transfer.kinds import plain, play


class Bag(list):
    __slots__ = ("first",)


class Table(dict):
    def __setitem__(self, key, value):
        raise AssertionError("its own method ran")

    keys = items = __iter__ = None


class Group(set):
    def __init__(self, one, two):
        raise AssertionError("its constructor ran")


def table():
    return dict.__new__(Table)


def group():
    return set.__new__(Group)


keys = st.sampled_from([1, True, 1.0, 0, False, 0.0, -0.0, "a", "b", (1,), (True,), None, b"a"])
values = st.integers(0, 3)
PAIRS = {
    "OrderedDict": OrderedDict, "defaultdict": defaultdict, "Counter": Counter, "Table": table,
}  # fmt: skip
ITEMS = {"deque": deque, "Bag": Bag, "Group": group}


def shown(obj):
    kind = containers.solid_base(type(obj))
    state = object.__getstate__(obj) or None
    if kind in (list, set, deque):
        items = list(kind.__iter__(obj))
        option = obj.maxlen if kind is deque else None
        return repr((sorted(items, key=repr) if kind is set else items, option, state))
    method = OrderedDict if kind is OrderedDict else dict
    return repr((list(method.items(obj)), getattr(obj, "default_factory", None), state))


def carried(new, old):
    """Put what is in one into another, by way of a pickle."""
    data = pickle.dumps(containers.content_of(new), 5)
    containers.fill(old, pickle.loads(data))
    assert shown(old) == shown(new)
    again = containers.make(*containers.shell_of(new))
    containers.fill(again, pickle.loads(data))
    assert shown(again) == shown(new)


def put(obj, pairs, order):
    kind = OrderedDict if isinstance(obj, OrderedDict) else dict
    for key, value in pairs:
        kind.__setitem__(obj, key, value)
    for key in order:
        if dict.__contains__(obj, key):
            value = dict.__getitem__(obj, key)
            kind.__delitem__(obj, key)
            kind.__setitem__(obj, key, value)


pairs = st.lists(st.tuples(keys, values), max_size=6)
orders = st.lists(keys, max_size=4)


@pytest.mark.parametrize("kind", PAIRS)
@given(before=pairs, after=pairs, one=orders, two=orders, attribute=st.none() | values)
def test_dictionaries(kind, before, after, one, two, attribute):
    old, new = PAIRS[kind](), PAIRS[kind]()
    put(old, before, one)
    put(new, after, two)
    if kind == "defaultdict":
        new.default_factory = list
    elif attribute is not None:
        new.tag = attribute
        old.other = 1
    carried(new, old)


@pytest.mark.parametrize("kind", ITEMS)
@given(before=st.lists(keys, max_size=6), after=st.lists(keys, max_size=6), size=values)
def test_what_has_no_keys(kind, before, after, size):
    old, new = ITEMS[kind](), ITEMS[kind]()
    for obj, found in ((old, before), (new, after)):
        if kind == "Group":
            set.update(obj, found)
        else:
            obj.extend(found)
    if kind == "deque":
        new = deque(new, maxlen=size or None)
    if kind == "Bag" and size:
        new.first = size
        old.first = 7
    carried(new, old)


#: What holds x: a cell, a container, and a module of the notebook's process.
HELD = "import builtins\nbuiltins.held = x\nf = (lambda v: lambda: v)(x)\nbox = {'in': (x,)}"
MAKE = {
    "OrderedDict": (
        "OrderedDict(a=[1], b=2)", "x.move_to_end('a')", "x['c'] = x.get('c', 0) + 1",
        "x.pop('b', 0)", "x.tag = len(x)", "x.popitem(last=False); x[0] = 1", "x['a'] = [3]",
    ),
    "defaultdict": (
        "defaultdict(list, k=[1])", "x['k'].append(2)", "x['l']", "x.pop('k', 0)",
        "x.default_factory = dict", "x['k'] = list(x.get('k') or ())",
    ),
    "deque": (
        "deque([[1], 2], maxlen=4)", "x.append(len(x))", "x.rotate()", "x.appendleft([3])",
        "x.popleft()", "x and x.pop()", "x.__init__(list(x), (x.maxlen or 4) - 1)",
    ),
    "Counter": (
        "Counter('aab')", "x.update('b')", "x.subtract('a')", "x.tag = len(x)", "x.clear()",
        "x['z'] += 1", "del x['a']",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", MAKE)
@settings(max_examples=20)
@given(data=st.data())
def test_holders_see_what_a_plain_interpreter_shows(eager, kind, data):
    make, *changes = MAKE[kind]
    same = "(f() is x, box['in'][0] is x)"
    look = f"seen.append(repr((x, list(x), getattr(x, 'tag', 0), builtins.held is x, {same})))"
    cells = [f"from collections import *\nseen = []\nx = {make}\n{HELD}"]
    for some in data.draw(st.lists(st.lists(st.sampled_from(changes), min_size=1), max_size=4)):
        tried = "\n".join(f"try: {each}\nexcept Exception: seen.append('no')" for each in some)
        cells += [f"{tried}\nseen.append(repr((x, {same})))", look]
    assert play(eager, cells, beside_gpu=False) == plain(cells)
