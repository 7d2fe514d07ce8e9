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
    ],
)
def test_the_way_to_what_blocks_is_named(shared, cell, name, words):
    play(shared, ["seen = 0\n" + cell], beside_gpu=False)
    with pytest.raises(GPULeaseError) as refused:
        shared.gpu(f"print({name})")
    assert re.search(f"{name} cannot travel .*: it holds {words}", refused.value.sentence)


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit", "MemoryError", "ValueError"])
def test_the_way_in_which_the_persons_own_class_is_pickled_is_not_asked(shared, error):
    source = f"class C:\n    def __reduce__(self): raise {error}('own')\nseen = 0\nc = C()\nd = [5]"
    play(shared, [source], beside_gpu=False)
    shared.gpu("d[0] += 1")
    shared.home("assert d == [6]")
    shared.gpu("c.d = d")
    shared.home("assert c.d is d")


def test_what_a_compiled_class_keeps_is_asked_of_the_class(shared):
    """By its flags a class statement made it, so an empty one was made on the other side."""
    play(shared, ["import kiwisolver\nx = kiwisolver.Variable('v')\nseen = 0"], beside_gpu=False)
    with pytest.raises(GPULeaseError, match=r"x cannot travel .* cannot pickle 'kiwisolver.Var"):
        shared.gpu("x")


def test_an_open_of_the_notebooks_own_travels(shared):
    play(shared, ["import gzip\nopen = gzip.open\nseen = 0"], beside_gpu=False)
    shared.gpu("assert open is gzip.open, open")
    with pytest.raises(CellError, match="ZeroDivisionError"):
        shared.gpu("1 / 0")


def test_a_name_that_stayed_at_home_explains_itself_beside_the_gpu(shared):
    work = "def work():\n    with guard: return 1"
    cell = f"import threading\nguard = threading.Semaphore()\n{work}\nseen = 0"
    play(shared, [cell], beside_gpu=False)
    with pytest.raises(CellError, match="guard stayed in your notebook: a semaphore does not"):
        shared.gpu("work()")
    assert shared.side.explain_stayed("nothing") is None


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        ("import csv, io\nx = csv.DictWriter(io.StringIO(), ['a'])", "_csv.writer"),
        ("import functools\nx = [functools.cmp_to_key(max)(1)]", "functools.KeyWrapper"),
    ],
)
def test_what_python_does_not_pickle_is_refused_by_name(shared, make, kind):
    play(shared, ["seen = 0\n" + make], beside_gpu=False)
    with pytest.raises(GPULeaseError, match=f"x cannot travel .*cannot pickle '{kind}' object"):
        shared.gpu("print(x)")
    shared.gpu("seen = 1")
