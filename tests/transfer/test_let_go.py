"""What a GPU cell changes and lets go of comes home where home holds it besides its names."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.verify.picture import picture
from tests.helpers import draws
from tests.transfer.kinds import by_own_names, each_group, plain, play

#: What makes c, what of it home holds elsewhere, what a GPU cell does, and what home sees then.
PARTS = {
    "deleted": ("c = [[1]]", "c[0]", "c[0].append(2); del c", "[1, 2]"),
    "cleared": ("c = [[1]]", "c[0]", "c[0].append(2); c.clear()", "[1, 2]"),
    "popped": ("c = [[1]]", "c[0]", "p = c.pop(); p.append(2); del p", "[1, 2]"),
    "bound anew": ("c = [[1]]", "c[0]", "c[0].append(2); c = None", "[1, 2]"),
    "itself": ("c = [1]", "c", "c.append(2); del c", "[1, 2]"),
    "both": ("c = [[1]]", "[c, c[0]][0]", "c[0].append(2); c.append(3); del c", "[[1, 2], 3]"),
    "in a dict": ("c = {'k': {}}", "c['k']", "c['k'][1] = (2, [3]); del c", "{1: (2, [3])}"),
    "set": ("c = [{1}]", "c[0]", "c[0].add(2); del c", "{1, 2}"),
    "bytearray": ("c = [bytearray(b'a')]", "c[0]", "c[0] += b'b'; del c", "bytearray(b'ab')"),
    "two names": ("c = [[1]]; d = c[0]", "d", "c[0].append(2); del c, d", "[1, 2]"),
    "by a function": (
        "c = [[1]]\ndef f():\n    global c\n    c[0].append(2)\n    del c", "c[0]", "f()", "[1, 2]",
    ),
    "an instance in it": (
        "class K: pass\nc = [[1]]", "c[0]", "c[0][0] = K; c[0].append(K()); del c", "[K, any]",
    ),
}  # fmt: skip


class Any:
    def __eq__(self, other):
        return True

    __hash__ = None


@each_group(PARTS)
def test_the_holder_sees_the_change(pair, group):
    own = by_own_names(PARTS[case] for case in group)
    makes, parts, changes, rights = zip(*own, strict=True)
    pair.home("\n".join(makes))
    held = [eval(part, pair.ns) for part in parts]
    pair.gpu("\n".join(changes))
    pair.home("pass")
    assert held == [eval(right, dict(pair.ns), {"any": Any()}) for right in rights]
    assert not pair.after.notes


def test_what_was_let_go_of_later_comes_home_then(pair):
    pair.home("c = [[1]]")
    held = pair.ns["c"][0]
    pair.gpu("d = c[0]")
    pair.gpu("del c")
    pair.gpu("d.append(2); del d")
    assert held == [1, 2]


def test_what_it_shares_with_a_name_stays_shared(pair):
    pair.home("c = [[1]]; d = [5]")
    held = pair.ns["c"][0]
    pair.gpu("c[0].append(d); del c")
    assert held == [1, [5]]
    assert held[1] is pair.ns["d"]
    pair.gpu("d.append(6)")
    pair.home("pass")
    assert held == [1, [5, 6]]
    pair.gpu("pass")
    pair.home("pass")
    pair.gpu("pass")
    assert "d" not in pair.last.moved


def test_what_home_let_go_of_itself_is_left_alone(pair):
    pair.home("c = [[1]]")
    held = pair.ns["c"][0]
    pair.gpu("c")
    pair.home("c[0].append(2); c = 5")
    pair.gpu("c = 6")
    pair.home("c")
    assert held == [1, 2]
    pair.home("c = [[3]]")
    pair.gpu("del c")
    assert held == [1, 2]


@pytest.mark.parametrize("change", ["c = [[1]]", "c[0] = [1]", "c = [list(d) for d in c]"])
def test_an_equal_one_in_its_place_is_another(pair, change):
    pair.home("c = [[1]]")
    held = pair.ns["c"], pair.ns["c"][0]
    pair.gpu(change)
    pair.home("c")
    pair.gpu("c[0].append(2)")
    pair.home("c")
    assert pair.ns["c"] == [[1, 2]]
    assert held[1] == [1]
    assert held[0][0] is (held[1] if "c =" in change else pair.ns["c"][0])


def test_nothing_of_it_is_sent_again(pair):
    pair.home("c = [[1]]")
    held = pair.ns["c"][0]
    pair.gpu("c[0].append(2); del c")
    held.append(3)
    pair.gpu("c = 1")
    pair.gpu("del c")
    pair.home("pass")
    assert held == [1, 2, 3]


def test_memory_of_large_ones_falls_within_the_cell(pair):
    pair.home("c = [bytearray(4_000_000)]")
    held = pair.ns["c"][0]
    pair.gpu("c")
    left = "len([o for o in gc.get_objects() + [c] if type(o) is list])"
    pair.gpu(f"import gc; before = {left}\nc.clear()")
    pair.home("before")
    assert len(held) == 4_000_000


#: As above, of kinds of which no copy waits beside the GPU, or which are replaced.
NAMED = {
    "an instance": ("class K: pass\nc = [K()]", "c[0]", "c[0].n = [1, 2]; del c"),
    "an instance taken out": ("class K: pass\nc = [K()]", "c[0]", "c[0].n = 1; c.clear()"),
    "an instance, by a function": (
        "class K: pass\nc = [K()]\ndef f():\n    global c\n    c[0].n = 1\n    del c",
        "c[0]", "f()",
    ),
    "a list of instances": ("class K: pass\nc = [[K()]]", "c[0]", "c[0].clear(); c = 1"),
    "an array": ("import numpy as np\nc = [np.zeros(2)]", "c[0]", "c[0][:] = 2; del c"),
    "a large list": ("c = [list(range(99_999))]", "c[0]", "c[0].append(2); del c"),
    "a frame": ("import pandas as pd\nc = pd.DataFrame({'a': [1]})", "c", "c['b'] = 2; del c"),
    "a frame bound anew": (
        "import pandas as pd\nc = pd.DataFrame({'a': [1]})", "c", "c['b'] = 2; c = c.copy()",
    ),
    "a part beside a frame": (
        "import pandas as pd\nc = [[1], pd.DataFrame()]", "c[0]", "c[0].append(2)",
    ),
    "a part in a tuple": (
        "from collections import namedtuple\nN = namedtuple('N', 'a')\nc = (N([]), [1])", "c[1]",
        "c[1].append(2)",
    ),
    "an array of objects": (
        "import numpy as np\nc = [np.array([[1], None], dtype=object)]", "c[0]",
        "c[0][1] = 2; del c",
    ),
    "a masked array": (
        "import numpy as np\nc = [np.ma.masked_array([1, 2])]", "c[0]", "c[0][1] = 3; del c",
    ),
    "arrays of which none shows all": (
        "import numpy as np\nc = np.arange(9.0); c = [c[1:4], c[2:7]]", "c[1]", "c[0][1] = 9",
    ),
    "an estimator in a list": (
        "from sklearn.linear_model import LinearRegression\nc = [LinearRegression()]", "c[0]",
        "c[0].fit([[1], [2]], [1, 2])",
    ),
    "a list beside a frame, in an instance": (
        "import pandas as pd\nclass K(list): pass\nc = K(); c.d = pd.DataFrame(); c.l = [1]", "c.l",
        "c.l.append(2)",
    ),
    "an index in a list": (
        "import pandas as pd\nc = [pd.Index([1])]", "c[0]", "c[0].name = 'q'",
    ),
    "a frame in a list": (
        "import pandas as pd\nc = [pd.DataFrame({'a': [1]})]", "c[0]", "c[0]['b'] = 2",
    ),
    "a part with a frame, let go of": (
        "import pandas as pd\nc = [[1], pd.DataFrame()]", "c[0]", "c[0].append(2); del c",
    ),
}  # fmt: skip


def told(pair):
    notes = [*pair.after.notes, *pair.last.notes]
    pair.home("globals()")  # where the machine is slow, the rest comes now
    notes += pair.last.notes
    return [name for note in notes if note.reason == "kept_old_object" for name in note.names]


def seen(value):
    return picture({"value": value}, ["value"])["values"]


@each_group(NAMED)
def test_what_cannot_be_brought_is_named_once(pair, group):
    own = by_own_names((*NAMED[case], "c") for case in group)
    makes, parts, changes, names = zip(*own, strict=True)
    make, change = "\n".join(makes), "\n".join(changes)
    space = {"__name__": "__main__"}
    exec(make, space)
    plain = [eval(part, space) for part in parts]
    exec(change, space)
    pair.home(make)
    held = [eval(part, pair.ns) for part in parts]
    pair.gpu(change)
    pair.home("pass")
    named = told(pair)
    assert len(named) == len(set(named) & set(names))
    for name, is_now, should in zip(names, held, plain, strict=True):
        assert name in named or seen(is_now) == seen(should), name
    pair.home(make)
    held += [eval(part, pair.ns) for part in parts]
    pair.gpu(change)
    pair.home("pass")
    assert told(pair) == []


@each_group(PARTS | NAMED)
def test_nothing_is_said_where_nobody_holds_it(pair, group):
    """Nor where IPython's results do, or another variable."""
    cases = [(PARTS | NAMED)[case] for case in group]
    own = by_own_names((case[0], case[2], "z = {'in': (c, list(c))}", "c") for case in cases)
    makes, changes, holders, names = zip(*own, strict=True)
    results = f"_oh = dict(enumerate([{', '.join(names)}]))\n_ = {names[-1]}"
    for holding in (results, "\n".join(holders)):
        pair.home("\n".join((*makes, holding)))
        pair.gpu("\n".join(changes))
        pair.home("pass")
        assert told(pair) == []


@pytest.mark.parametrize("first", ["c", "z"])
def test_nothing_is_said_of_what_a_variable_holds_that_is_still_to_come(new_pair, first):
    pair = new_pair(settings={"small_bytes": -1})
    pair.attach()
    make, _, change = NAMED["a frame bound anew"]
    pair.home(f"{make}\nz = {{'in': (c, list(c))}}")
    pair.gpu(change)
    pair.home(first)
    assert told(pair) == []
    held = pair.ns["c"]
    pair.gpu("c['d'] = 3; c = c.copy()")
    pair.home("c")
    assert told(pair) == ["c"], held


UNCHANGED = ("del c", "c = 5", "c = c[:0]", "c = [d for d in c]", "c = [1]; c.append(2); del c")


@pytest.mark.parametrize("change", UNCHANGED)
def test_nothing_is_said_of_what_the_cell_cannot_have_changed(pair, change):
    pair.home("class K: pass\nc = [K()]")
    held = [pair.ns["c"][0], pair.ns["c"]]
    pair.gpu(change)
    pair.home("pass")
    assert told(pair) == []
    assert held[1][0] is held[0]


CHANGES = (
    "c[0].append(1)", "c.append([2])", "c.pop()", "c[0] = [3]", "d.append(c[0])", "d = c[0]",
    "c[0].append(d)", "del c", "del d", "c = [d]", "c.clear()", "d = [c]", "c[0].clear()",
)  # fmt: skip


@settings(max_examples=draws(12))
@given(cells=st.lists(st.lists(st.sampled_from(CHANGES), min_size=1, max_size=4), max_size=5))
def test_holders_see_what_they_see_in_a_plain_interpreter(eager, cells):
    """Of what home held at the start: the list and its parts."""
    look = "seen.append(repr((builtins.held, builtins.held[0] is builtins.held[1][0])))"
    source = ["import builtins\nseen = []\nc = [[1]]; d = [5]\nbuiltins.held = [c[0], c, d]"]
    for some in cells:
        lines = [f"try: {each}\nexcept Exception: seen.append('no')" for each in some]
        source += [
            "\n".join(lines),
            look.replace("builtins.held[1][0]", "(builtins.held[1] or [0])[0]"),
        ]
    assert play(eager, source, beside_gpu=False) == plain(source)
