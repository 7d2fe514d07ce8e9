"""What is put into a container that is there already makes it what a plain interpreter has."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import draws
from tests.transfer.kinds import plain, play

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


@settings(max_examples=draws(12))
@given(data=st.data())
def test_holders_see_what_a_plain_interpreter_shows(eager, data):
    make, *changes = data.draw(st.sampled_from(list(MAKE.values())))
    same = "(f() is x, box['in'][0] is x)"
    look = f"seen.append(repr((x, list(x), getattr(x, 'tag', 0), builtins.held is x, {same})))"
    cells = [f"from collections import *\nseen = []\nx = {make}\n{HELD}"]
    for some in data.draw(st.lists(st.lists(st.sampled_from(changes), min_size=1), max_size=4)):
        tried = "\n".join(f"try: {each}\nexcept Exception: seen.append('no')" for each in some)
        cells += [f"{tried}\nseen.append(repr((x, {same})))", look]
    assert play(eager, cells, beside_gpu=False) == plain(cells)
