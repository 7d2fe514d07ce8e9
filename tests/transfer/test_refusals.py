"""What cannot travel is named with the way to it, and stops only the cell that needs it."""

import re

import pytest

from gpulease.errors import GPULeaseError
from tests.transfer.kinds import open_pair, play
from tests.transfer.pair import CellError


@pytest.fixture(scope="module")
def shared():
    with open_pair() as pair:
        yield pair


VIEWED = """
class Callback:
    def __init__(self): self._view = memoryview(bytearray(1))
class Slotted:
    __slots__ = ('part',)
class Model: pass
model = Model()
model.callbacks = [1, 2, Callback()]
"""


@pytest.mark.parametrize(
    ("cell", "name", "words"),
    [
        (VIEWED, "model", r"a memoryview \(model\.callbacks\[2\]\._view\)"),
        ("d = {'a': [memoryview(b'')]}", "d", r"a memoryview \(d\['a'\]\[0\]\)"),
        (
            VIEWED + "s = Slotted(); s.part = (Callback(),)",
            "s",
            r"a memoryview \(s\.part\[0\]\._view\)",
        ),
        ("import threading\nx = threading.Lock(); x.acquire()", "x", r"a lock that is in use\."),
        (  # what the proxy stood for is gone: not even its type can be asked for
            "import weakref\nclass A: pass\np = [weakref.proxy(A()), memoryview(b'')]",
            "p",
            r"a weak reference|a memoryview \(p\[1\]\)",
        ),
        ("x = (i for i in [])", "x", r"a generator .*\."),
        # Each would come back as an iterator over a list, which sees no change of its dictionary.
        ("x = iter({1: 2}.items())", "x", r"an iterator over a dict or set\."),
        (
            "from collections import OrderedDict\nx = OrderedDict(k=1).values().__iter__()",
            "x",
            r"an iterator over a dict or set\.",
        ),
        (
            "import re\nx = re.finditer('a', 'aa')",
            "x",
            r"a running search \(make a list where it runs: list\(re.finditer\(...\)\)\)\.",
        ),
        (
            "import contextvars\nx = contextvars.ContextVar('x').set(1)",
            "x",
            r"a context variable, a token or a context of such\.",
        ),
        (
            "import csv, io\nx = csv.writer(io.TextIOWrapper(io.BytesIO()))",
            "x",
            r"a csv writer over an open file\.",
        ),
        (  # of a temporary file it has a function that holds the file
            "import csv, tempfile\nx = csv.writer(tempfile.NamedTemporaryFile('w'))",
            "x",
            r"an open file",
        ),
        (
            "x = (lambda: 0).__code__.co_lines()",
            "x",
            r"an object of the type line_iterator, which Python does not pickle\.",
        ),
    ],
)
def test_the_way_to_what_blocks_is_named(shared, cell, name, words):
    play(shared, ["seen = 0\n" + cell], beside_gpu=False)
    with pytest.raises(GPULeaseError) as refused:
        shared.gpu(f"print({name})")
    assert re.search(f"{name} cannot travel .*: it holds {words}", refused.value.sentence)


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit", "MemoryError", "ValueError"])
def test_a_value_that_raises_when_it_is_packed_stops_only_who_needs_it(shared, error):
    source = f"class C:\n    def __reduce__(self): raise {error}('own')\nseen = 0\nc = C()\nd = [5]"
    play(shared, [source], beside_gpu=False)
    shared.gpu("d[0] += 1")
    shared.home("assert d == [6]")
    with pytest.raises(GPULeaseError, match="c cannot travel"):
        shared.gpu("print(c)")


def test_what_does_not_load_on_the_gpu_is_said_once(pair):
    pair.home(
        "class C:\n    def __init__(s, a): s.a = a\n    def __reduce__(s): return C, ()\nc = C(1)"
    )
    said = []
    for _ in range(3):
        pair.gpu("n = 1")
        said += [note.sentence for note in pair.last.notes]
        pair.home("n = 2")
    assert len(said) == 1, said
    assert said[0].startswith("c stays in your notebook: it does not load on the other side")
    pair.home("del c")
    pair.gpu("pass")
    pair.home("c = C(2)")
    pair.gpu("pass")
    assert [note.names for note in pair.last.notes] == [("c",)]


def test_an_open_of_the_notebooks_own_travels(shared):
    play(shared, ["import gzip\nopen = gzip.open\nseen = 0"], beside_gpu=False)
    shared.gpu("assert open is gzip.open, open")
    with pytest.raises(CellError, match="ZeroDivisionError"):
        shared.gpu("1 / 0")


def test_a_name_that_stayed_at_home_explains_itself_beside_the_gpu(shared):
    work = "def work():\n    with guard: return 1"
    cell = f"import threading\nguard = threading.Semaphore()\n{work}\nseen = 0"
    play(shared, [cell], beside_gpu=False)
    with pytest.raises(CellError, match="'guard' is not defined"):
        shared.gpu("work()")
    note = shared.side.explain_stayed("guard")
    assert note.sentence.startswith("guard is in your notebook and cannot travel to the GPU: it ho")
    assert "a semaphore" in note.sentence
    assert shared.side.explain_stayed("work") is None
    assert shared.side.explain_stayed("nothing") is None


def test_what_refers_to_it_through_functions_says_so_too(new_pair):
    pair = new_pair(settings={"small_bytes": -1, "eager_bytes": -1})
    pair.attach()
    pair.home("a = {1, 2, 3}")
    pair.gpu("c = (lambda v: (lambda: lambda: v))(a)\na = iter(a)")
    pair.home("globals()")
    kind = "an iterator over a dict or set"
    for name, why in {"a": f"it holds {kind}", "c": f"it is in use by a, {kind}; once"}.items():
        said = pair.side.explain(name).sentence
        assert f" cannot be copied to the notebook: {why}" in said, said


def test_what_a_library_says_is_said_and_not_what_else_it_holds(shared):
    """Only Python's own complaint, which names a type, is explained by what is found inside."""
    shared.gpu(
        "import weakref\nclass Doc: pass\nclass View:\n"
        "    def __init__(self): self.doc = doc; self.ref = weakref.WeakMethod\n"
        "    def __reduce__(self): raise NotImplementedError('pickle the whole document')\n"
        "class Ref:\n    def __init__(self): self.ref = weakref.ref(Doc)\n"
        "doc = Doc(); view = View(); view.held = Ref()"
    )
    with pytest.raises(GPULeaseError, match=r"view .*NotImplementedError: pickle the whole docu"):
        shared.home("view")
