"""What never moves stays where it was made, and what holds it travels."""

import pytest

from gpulease.errors import GPULeaseError
from tests.transfer.kinds import in_turn, plain, play
from tests.transfer.pair import CellError


def begin(pair, cell):
    play(pair, ["seen = 0\nclass Box: pass\n" + cell], beside_gpu=False)


FILE = (
    "import os\ntrainer = Box(); trainer.log = open(os.devnull, 'w'); log = trainer.log\n"
    "trainer.model = model = [1]"
)

# ---- a leaf of home


def test_a_generator_does_not_keep_its_list_at_home(either):
    begin(either, "lst = [1, 2, 3]; gen = (x for x in lst); assert next(gen) == 1")
    either.gpu("lst.append(4); lst[1] = 20")
    either.home("assert lst == [1, 20, 3, 4]\nassert list(gen) == [20, 3, 4]")
    assert not either.last.notes


def test_a_holder_travels_and_the_leaf_is_the_very_one_again(either):
    begin(either, FILE)
    either.gpu("assert trainer.model is model\nmodel.append(2)\ntrainer.step = 1")
    either.home(
        "assert trainer.log is log and trainer.model is model and trainer.step == 1\n"
        "assert model == [1, 2]\ntrainer.log.write('x')"
    )
    said = r"log stayed in your notebook: an open file does not travel"
    with pytest.raises(CellError, match=said):
        either.gpu("trainer.log.write('x')")
    with pytest.raises(GPULeaseError, match=r"log cannot travel .* it holds an open file\."):
        either.gpu("log")
    either.home("log.close()")


def test_a_holder_does_not_look_changed(eager):
    begin(eager, FILE)
    eager.gpu("trainer, model")
    eager.home("pass")
    eager.gpu("trainer, model")
    assert eager.last.moved == (), eager.last
    eager.gpu("trainer")
    eager.home("log.close()")
    assert eager.last.moved == (), eager.last


def test_what_is_taken_out_or_put_in_its_place_beside_the_gpu_takes_effect(eager):
    begin(eager, "a = Box(); a.l = (i for i in 'ab'); b = {'l': (i for i in 'ab')}; keep = [a.l]")
    eager.gpu("del a.l; b['l'] = 5")
    eager.home("assert not hasattr(a, 'l') and b == {'l': 5} and next(keep[0]) == 'a'")


def test_copies_of_the_holder_lead_to_the_one_leaf(eager):
    begin(eager, "import copy\na = Box(); a.l = (i for i in 'ab'); a.n = [1]")
    eager.gpu("b = copy.copy(a); b.n = [2]; c = [a.l, a.l]; d = (a.l,)")
    eager.home("assert b is not a and b.l is a.l is c[0] is c[1] is d[0] and b.n == [2]")
    with pytest.raises(CellError, match="stayed in your notebook"):
        eager.gpu("copy.deepcopy(a)")


@pytest.mark.parametrize("holder", ["{}", "[{}]", "lambda kind={}: kind"])
def test_the_type_of_what_stands_for_it_is_refused_by_name(either, holder):
    """`type` cannot be answered as `isinstance` is."""
    begin(either, "a = [(i for i in 'ab')]; b = [0]")
    either.gpu(f"kind = {holder.format('type(a[0])')}; b.append(1); it = a[0]")
    with pytest.raises(GPULeaseError, match=r"kind cannot travel .*: the type of what stands for"):
        either.home("kind")
    either.gpu("kind = type(a)")
    either.home("assert kind is list and b == [0, 1]")


def test_what_stands_for_it_is_listed_by_its_type(eager):
    begin(eager, "class T(__import__('threading').Thread): pass\na = [(i for i in 'ab'), T()]")
    eager.gpu("b = [(i for i in 'ab'), T()]; n = 1")
    eager.home("it, t = b")
    kinds = {row.name: row.type_name for row in eager.side.status()}
    assert (kinds["it"], kinds["t"]) == ("generator", "T"), kinds


def test_a_name_that_the_gpu_gave_to_it_is_the_leaf_at_home(eager):
    begin(eager, "a = Box(); a.l = (i for i in 'ab')")
    eager.gpu("it = a.l")
    eager.home("assert it is a.l and next(it) == 'a'")


HOLDERS = {
    "list": ("x = [leaf]", "x[0]"),
    "dict value": ("x = {'k': leaf}", "x['k']"),
    "slots": ("class S: __slots__ = ('v',)\nx = S(); x.v = leaf", "x.v"),
    "dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n    v: object\nx = D(leaf)",
        "x.v",
    ),
    "closure": ("def m(v):\n    return lambda: v\nx = m(leaf)", "x()"),
    "partial": ("import functools\nx = functools.partial(print, leaf)", "x.args[0]"),
}
LEAVES = {
    "generator": ("leaf = (i for i in range(9))", "next({})"),
    "held lock": ("import threading\nleaf = threading.RLock(); leaf.acquire()", "{}.release()"),
    "thread of a class of one's own": (
        "import threading\nclass T(threading.Thread):\n    n = 1\nleaf = T()",
        "{}.n",
    ),
    "method": ("import threading\nleaf = threading.Event().is_set", "{}()"),
    "file": ("import os\nleaf = open(os.devnull)", "{}.read()"),
    "dict iterator": ("leaf = iter({1: 2})", "next({})"),
    "event": ("import threading\nleaf = threading.Event()", "{}.is_set()"),
    "executor": (
        "import concurrent.futures\nleaf = concurrent.futures.ThreadPoolExecutor(1)",
        "{}.shutdown()",
    ),
    "thread local": ("import threading\nleaf = threading.local(); leaf.n = 1", "{}.n"),
}
CLOSE = "\nleaf = {}\nif hasattr(leaf, 'close'): leaf.close()\ndel leaf, x"


@in_turn(leaf=LEAVES, holder=["list", "slots", "closure"])
def test_every_kind_in_both_directions(eager, leaf, holder):
    both_ways(eager, LEAVES[leaf], HOLDERS[holder])


@pytest.mark.parametrize("holder", HOLDERS)
def test_every_holder_in_both_directions(eager, holder):
    both_ways(eager, LEAVES["generator"], HOLDERS[holder])


def both_ways(pair, leaf, holder):
    (make, use), (hold, at) = leaf, holder
    begin(pair, f"{make}\n{hold}\nn = [1]\nimport builtins; builtins.kept = leaf; del leaf")
    pair.gpu(f"n.append({at} is {at})")
    with pytest.raises(CellError, match="stayed in your notebook"):
        pair.gpu(use.format(at))
    pair.gpu("n.append(x); n.append('later')")
    pair.home(f"assert {at} is kept and n[1] and n[2] is x, n\nn.clear()\n{use.format(at)}")
    pair.home("del builtins.kept" + CLOSE.format(at))
    pair.gpu(f"{make}\n{hold}\nn = [1]\nimport builtins; builtins.kept = leaf; del leaf")
    pair.home(f"n.append({at} is {at})")
    with pytest.raises(GPULeaseError, match="stayed on the GPU"):
        pair.home(use.format(at))
    pair.home("n.append(x); n.append('later')")
    pair.gpu(f"assert {at} is kept and n[1] and n[2] is x, n\nn.clear()\n{use.format(at)}")
    pair.gpu("del builtins.kept" + CLOSE.format(at))


def test_what_stands_for_it_answers_what_it_can_and_says_the_rest(eager):
    begin(
        eager,
        "import threading, io, os\nclass W(threading.Thread): pass\n"
        "a = Box(); a.t = W(); a.f = open(os.devnull); a.g = (i for i in [])",
    )
    eager.gpu(
        "import collections.abc, inspect, io, threading\n"
        "assert isinstance(a.t, W) and isinstance(a.t, threading.Thread)\n"
        "assert isinstance(a.f, io.TextIOWrapper) and not isinstance(a.f, io.RawIOBase)\n"
        "assert inspect.isgenerator(a.g) and isinstance(a.g, collections.abc.Iterator)\n"
        "assert a.f and a.f == a.f and a.f != a.t and a.f in [a.f] and {a.f: 1}[a.f] == 1\n"
        "assert not hasattr(a.f, '__array__')\n"
        "assert repr(a.f) == '<a.f stayed in your notebook: an open file does not travel>'"
    )
    for use in (
        "hasattr(a.f, 'write')", "a.f.name", "a.f.name = 1", "del a.f.name", "list(a.g)",
        "a.f < 1", "1 in a.f", "next(a.f)", "import pickle\n"
        "pickle.dumps(a.f)", "import copy\ncopy.deepcopy(a)", "with a.f: pass", "f'{a.f}'",
        "def g(): yield from a.g\nnext(g())", "for _ in a.g: pass", "a.t.start()",
    ):  # fmt: skip
        with pytest.raises(CellError, match=r"a\.[ftg] stayed in your notebook: "):
            eager.gpu(use)
    for use in (
        "len(a.f)",
        "a.f[0]",
        "a.f()",
        "a.f + 1",
        "import functools\nfunctools.partial(a.g)",
    ):
        with pytest.raises(CellError, match="TypeError: "):  # as for what it stands for
            eager.gpu(use)
    eager.home("a.f.close()")


# ---- a leaf of the GPU's side


def test_a_generator_beside_the_gpu_sees_what_home_changes(either):
    begin(either, "pass")
    either.gpu("lst = [1, 2, 3]\ngen = (x for x in lst)\nassert next(gen) == 1")
    either.home("lst[1] = 20; lst.append(4)")
    either.gpu("assert next(gen) == 20\ngot = list(gen)\nassert lst == [1, 20, 3, 4]")
    either.home("assert got == [3, 4] and lst == [1, 20, 3, 4]")


def test_of_a_large_list_as_well(either):
    begin(either, "lst = list(range(15_000))")
    either.gpu("gen = (x for x in lst)\nassert next(gen) == 0")
    either.home("lst[1] = 20")
    either.gpu("assert next(gen) == 20")


def test_an_array_that_a_generator_beside_the_gpu_reads(either):
    begin(either, "import numpy as np\na = np.zeros(3_000_000)")
    either.gpu("gen = (x for x in a)\nassert next(gen) == 0")
    either.home("a[1] = 20")
    either.gpu("assert next(gen) == 20")


CHANGES = (
    "def g(l):\n    while True:\n        l.append(len(l)); yield\n"
    "gen = g(lst)\nbox = [gen]\nnext(gen)"
)


def test_a_generator_beside_the_gpu_changes_what_home_has(either):
    begin(either, "lst = []")
    either.gpu(CHANGES)
    either.home("assert lst == [0]\nlst.append('h')")
    either.gpu("next(gen)")
    new = [0, "h", 2]
    assert either.ns.get("lst", new) == new, "before any cell reads it, a callback may"
    either.home("assert lst == [0, 'h', 2]")
    either.gpu("next(box[0])")
    either.home("assert lst == [0, 'h', 2, 3]")


def test_a_generator_at_home_changes_what_the_gpu_has(either):
    begin(either, "lst = []\n" + CHANGES)
    either.gpu("assert lst == [0]\nlst.append('g')")
    either.home("next(gen)\nassert lst == [0, 'g', 2]")
    either.gpu("assert lst == [0, 'g', 2]\nlst.append(3)")
    either.home("next(box[0])\nassert lst == [0, 'g', 2, 3, 4]")


def test_a_global_that_its_code_reads(either):
    begin(either, "scale = [2]")
    either.gpu("def g():\n    while True: yield scale[0]\nbox = [g()]\nassert next(box[0]) == 2")
    either.home("scale[0] = 5")
    either.gpu("assert next(box[0]) == 5")


def test_a_generator_over_a_view_that_no_name_has(either):
    begin(either, "import numpy as np\na = np.arange(6.)\ngen = (x for x in a[2:])")
    either.gpu("a[2] = 9")
    either.home("assert next(gen) == 9 and a[2] == 9")
    either.gpu("more = (float(x) for x in a[3:]); first = next(more)")
    either.home("assert first == 3; a[4] = 7; a[5] = 8")
    either.gpu("assert list(more) == [7, 8]\na[3] = 1")
    either.home("assert next(gen) == 1")


BATCHES = """
import numpy as np
X = np.arange(40.).reshape(20, 2); train, test = X[:16], X[16:]
def batches(rows, n):
    for start in range(0, len(rows), n):
        yield rows[start:start + n]
"""


@pytest.mark.parametrize("side", ["home", "gpu"])
def test_a_generator_of_batches(either, side):
    """What it has given shares memory with what it will give."""
    begin(either, BATCHES)
    here, there = (either.home, either.gpu)[:: 1 if side == "home" else -1]
    here("gen = batches(train, 4); batch = next(gen)")
    there("batch *= 2; total = X.sum()")
    here("assert total == X.sum() == 808 and batch[0, 1] == 2\nbatch = next(gen)")
    there("X += 1; total = batch.sum()")
    here("assert total == 100 == batch.sum() and next(gen)[0, 0] == 17 and test[0, 0] == 33")
    there("assert test[0, 0] == 33 and batch.base is X.base and batch.base is not X")


def test_what_a_generator_has_and_nobody_can_change(either):
    begin(
        either,
        "import numpy as np, pandas as pd\npairs = [([1], 2), ([3], 4)]\n"
        "days = list(pd.date_range('2020', periods=3)); row = np.zeros(2, dtype=[('n', 'i4')])",
    )
    either.gpu("gens = [(x for x in pairs), (x for x in days), (x for x in row)]")
    either.gpu("pair, day, r = map(next, gens)")
    either.home("assert pair is pairs[0] and day is days[0]\npair[0].append(5); row['n'] = 7")
    either.gpu("assert pairs[0][0] == [1, 5] and r['n'] == 7 == next(gens[2])['n']")


def test_what_an_array_of_objects_holds(either):
    begin(
        either, "import numpy as np\nitem = [1]; some = np.array([item, None, [2]], dtype=object)"
    )
    either.gpu(
        "gen = (x for x in some[::2]); more = (x for x in np.array([item, 3], dtype=object))"
    )
    either.gpu("first = next(gen), next(more)")
    either.home("assert first[0] is first[1] is item\nitem.append(5); some[2] = 9")
    either.gpu("assert first == ([1, 5], [1, 5]) and next(gen) == 9")


def test_what_is_replaced_at_home_is_named(new_pair):
    pair = new_pair()  # what is late is said under the next cell
    pair.attach()
    pair.home(
        "import pandas as pd\nbox = [pd.DataFrame({'a': [1]})]\n"
        "gen = (f for f in (box[0], 2))\nhold = [gen]"
    )
    pair.gpu("box[0].loc[0, 'a'] = 5")
    notes = [n.sentence for n in pair.after.notes if n.reason == "kept_old_object"]
    assert len(notes) == 1, notes
    assert notes[0].startswith("box is another object in your notebook")


# ---- where nothing may stand for it


ITERATORS = {
    "zip": "zip(gen, 'cdef')",
    "enumerate": "enumerate(gen)",
    "map": "map(str, gen)",
    "filter": "filter(None, gen)",
    "islice": "itertools.islice(gen, 5)",
    "zip_longest": "itertools.zip_longest(gen, 'cdef')",
    "takewhile": "itertools.takewhile(bool, gen)",
    "within another": "enumerate(zip('cdef', gen))",
    "a csv reader": "csv.reader(gen)",
    "rows of a frame": "pd.DataFrame({'a': range(4)}).itertuples()",
}


@in_turn(side=["home", "gpu"], kind=ITERATORS)
def test_an_iterator_over_a_generator_stays_as_well(eager, kind, side):
    begin(eager, "import csv, itertools\nimport pandas as pd")
    here, there = (eager.home, eager.gpu)[:: 1 if side == "home" else -1]
    here(f"gen = (i for i in 'abcd'); n = [1]; x = [{ITERATORS[kind]}, n]; first = next(x[0])")
    there("n.append(2); assert x[1] is n")  # what shares the list with it travels
    with pytest.raises((GPULeaseError, CellError), match=r"generator \(|iterator of itertools"):
        there("next(x[0])")
    here("assert len(list(x[0])) == 3 and n == [1, 2] and x[1] is n\ndel x, gen")


def test_what_asks_it_while_it_is_loaded_is_refused(eager):
    begin(eager, "class M(map): pass\ngen = (i for i in 'ab')\nx = [M(str, gen)]")
    with pytest.raises(GPULeaseError, match=r"x cannot travel .*: it"):
        eager.gpu("x")
    eager.home("assert list(x[0]) == ['a', 'b']")


def test_what_no_name_leads_to_is_told_by_the_variable_that_holds_it(pair):
    pair.home(
        "from contextlib import contextmanager\n@contextmanager\ndef tagged(): yield\n"
        "leave = tagged().__exit__"
    )
    with pytest.raises(CellError, match="Something in leave stayed in your notebook: a generator"):
        pair.gpu("leave(None, None, None)")


# ---- when a side is gone


def test_it_is_gone_with_its_companion(new_pair):
    pair = new_pair()
    pair.attach()
    pair.gpu("box = [(i for i in range(3)), 5]")
    pair.home("assert box[1] == 5")
    pair.side.drain(60)
    pair.side.disconnect(died=False)
    pair.companion.close()
    with pytest.raises(GPULeaseError, match=r"box\[0\] is gone: it was a generator .* on the GPU"):
        pair.home("next(box[0])")
    pair.attach()
    with pytest.raises(CellError, match=r"box\[0\] is gone: it was a generator .* on the GPU"):
        pair.gpu("next(box[0])")
    pair.gpu("box[0] = 1")
    pair.home("assert box == [1, 5]")


def test_a_parked_holder_says_that_it_is_gone(new_pair, tmp_path):
    path = tmp_path / "parked"
    pair = new_pair()
    pair.attach()
    pair.leave_parked("import numpy as np\nbox = [np.ones(5_000_000), (i for i in [1])]", path)
    pair.side.disconnect(died=False)
    pair.attach(parked=str(path))
    with pytest.raises(CellError, match=r"box\[1\] is gone: it was a generator .* on the GPU"):
        pair.gpu("next(box[1])")
    pair.home("assert box[0].sum() == 5_000_000")


def test_a_thread_beside_the_gpu_does_not_keep_what_it_was_given(eager):
    begin(eager, "lst = []")
    eager.gpu(
        "import threading\ngo, done = threading.Event(), threading.Event()\n"
        "def work(l):\n    go.wait(); l.append(1); done.set()\n"
        "box = [threading.Thread(target=work, args=(lst,))]\nbox[0].start()"
    )
    eager.home("lst.append(0)")
    eager.gpu("go.set(); done.wait(); box[0].join()")
    eager.home("assert lst == [0, 1]")


#: What a plain kernel gives after these cells, alternately at home and on the GPU.
AS_PLAIN = {
    "a set and its iterators": [
        "s = {1, 2, 3}; it = iter(s); gen = (x for x in s); d = {5: 6}; i = iter(d)",
        "d[5] = 7; n = len(s)",
        "seen = sorted(it), sorted(gen), next(i), d, n",
    ],
    "views of one memory": [
        "import numpy as np\na = np.arange(9.); a, b = a[1:5], a[3:7]\ngen = (x for x in a[2:])",
        "a[2] = 9",
        "seen = float(next(gen)), a.tolist(), b.tolist()",
    ],
    "what a class of the person's has": [
        "class C:\n    def __init__(s): s.l, s.n = (i for i in 'ab'), 1\n"
        "    def __reduce__(s): return C, ()\n    def __getstate__(s): return {}\nx = C()",
        "x.n += 1; y = x",
        "seen = x.n, y is x, next(x.l)",
    ],
    "a temporary file": [
        "import tempfile, os\nbox = [tempfile.NamedTemporaryFile()]",
        "n = len(box)",
        "seen = n, os.path.exists(box[0].name); box[0].close()",
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", AS_PLAIN)
def test_it_is_as_in_a_plain_kernel(either, kind):
    assert play(either, AS_PLAIN[kind], beside_gpu=False) == plain(AS_PLAIN[kind])


def test_a_class_that_shares_a_list_has_the_newest(either):
    begin(either, "there = [{1, 2}, 3]\nclass A: items = there\na = A()")
    either.gpu("there[1] = 20")
    either.home("assert A.items[1] == a.items[1] == 20 and a.items is there")


def test_what_home_no_longer_holds_is_gone(lazy):
    begin(lazy, "box = [(i for i in range(3))]; n = [1]")
    lazy.gpu("import builtins; builtins.kept = box[0]")
    lazy.home("box.clear()")
    lazy.gpu("n.append(builtins.kept); del builtins.kept")
    with pytest.raises(GPULeaseError, match=r"n\[1\] is gone: it was a generator .* your notebook"):
        lazy.home("next(n[1])")


def test_a_frame_that_an_iterator_goes_through_is_named(eager):
    begin(eager, "import pandas as pd")
    eager.gpu("df = pd.DataFrame({'a': [1, 2]})\nrows = df.iterrows(); _ = next(rows)")
    eager.home("df.loc[1, 'a'] = 9")
    eager.gpu("n = len(df)")
    (note,) = eager.last.notes
    assert note.names == ("df",)
    assert "and rows still has the one from before" in note.sentence


STUCK = "there[1] = 20; held = iter(there[0])"


def test_what_shares_a_part_gets_the_newest_a_cell_later(either):
    begin(either, "import numpy as np\na = np.arange(4); it = (x for x in a[1:])")
    either.gpu("a *= 2")
    either.gpu("a *= 2")
    either.home("other = 1")
    either.home("assert list(it) == [4, 8, 12]")


def test_a_name_bound_anew_needs_nothing_of_it(either):
    begin(either, "there = [{1, 2}, 3]; it = (x for x in there)")
    either.gpu(STUCK)
    either.home("it = [5]")
    either.gpu("other = 1")
    either.home("assert it == [5]")
    either.gpu("del held")
