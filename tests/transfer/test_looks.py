"""Values that raise when they are looked at: they stay, by name, and end nobody's cell."""

from contextlib import contextmanager

import pytest

from gpulease.errors import GPULeaseError
from tests.transfer.kinds import in_turn
from tests.transfer.pair import CellError

#: How such a value is made, as ``odd``; and an expression that works where it is.
ODD = {
    "a name of an archive": (
        "import io, numpy\nfile = io.BytesIO()\n"
        "numpy.savez(file, a=numpy.arange(3), __class__=numpy.arange(2))\n"
        "odd = numpy.load(io.BytesIO(file.getvalue()))",
        "int(odd['a'].sum()) == 3",
    ),
    "a class that it does not tell": (
        "class Odd:\n    @property\n    def __class__(self): raise RuntimeError('no look')\n"
        "odd = Odd()",
        "type(odd) is Odd",
    ),
    "no attribute at all": (
        "class Odd:\n    def __getattribute__(self, name): raise KeyError(name)\nodd = Odd()",
        "type(odd) is Odd",
    ),
    "a class of another shape": (
        "class Odd:\n    __class__ = property(lambda self: dict)\nodd = Odd()",
        "isinstance(odd, dict)",
    ),
    "a class of no type": (
        "class Odd:\n    __class__ = property(lambda self: [1])\nodd = Odd()",
        "type(odd) is Odd",
    ),
    "a metaclass that raises": (
        "class Meta(type):\n    def __getattribute__(cls, name):\n"
        "        if name in ('__module__', '__mro__', '__name__'): raise ValueError(name)\n"
        "        return type.__getattribute__(cls, name)\n"
        "class Odd(metaclass=Meta): pass\nodd = Odd()",
        "type(odd) is Odd",
    ),
    "a metaclass that answers nothing": (
        "class Meta(type):\n    def __getattribute__(cls, name): raise ValueError(name)\n"
        "class Odd(metaclass=Meta): pass\nodd = Odd()",
        "type(odd) is Odd",
    ),
    "a class without a hash": (
        "class Meta(type):\n    def __eq__(cls, other): return True\n"
        "class Odd(metaclass=Meta): pass\nodd = Odd()",
        "type(odd) is Odd",
    ),
    "a class whose hash raises": (
        "class Meta(type):\n    def __hash__(cls): raise OSError('no hash')\n"
        "class Odd(metaclass=Meta): pass\nodd = Odd()",
        "type(odd) is Odd",
    ),
    "a class that is no class for others": (
        "class Meta(type):\n    def __subclasscheck__(cls, other): raise OSError('no')\n"
        "    def __instancecheck__(cls, other): raise OSError('no')\n"
        "    def __bool__(cls): raise OSError('no')\n    def __len__(cls): raise OSError('no')\n"
        "class Odd(metaclass=Meta): pass\nodd = Odd()",
        "type(odd) is Odd",
    ),
    "no truth and no length": (
        "class Odd:\n    def __bool__(self): raise OSError('no')\n"
        "    def __len__(self): raise OSError('no')\n    def __eq__(self, other): raise OSError\n"
        "    def __iter__(self): raise OSError('no')\n    __hash__ = None\nodd = Odd()",
        "type(odd) is Odd",
    ),
    "its own reduction": (
        "class Odd:\n    def __reduce_ex__(self, protocol): raise OSError('closed')\nodd = Odd()",
        "type(odd) is Odd",
    ),
    "a dictionary that raises": (
        "class Odd:\n    @property\n    def __dict__(self): raise OSError('no dict')\nodd = Odd()",
        "type(odd) is Odd",
    ),
    "a key that raises": (
        "class Key:\n    def __hash__(self):\n        if armed: raise OSError('no hash')\n"
        "        return 1\n    def __eq__(self, other): raise OSError('no eq')\n"
        "armed = False\nodd = {Key(): 1}\narmed = True",
        "len(odd) == 1",
    ),
}
#: How a name leads to it.
HELD = {"itself": "odd", "in a list": "[odd, 1]", "an attribute": "Box(odd)"}
BOX = "class Box:\n    def __init__(self, x): self.x = x\n"


@contextmanager
def named_where_it_cannot(*names):
    """What travels is right on the other side; what does not is refused by one of ``names``."""
    try:
        yield
    except (GPULeaseError, CellError) as error:
        if not any(name in str(error) for name in names):
            raise


@in_turn(held=HELD, kind=ODD)
def test_what_cannot_be_looked_at_stays_by_name(pair, kind, held):
    source, works = ODD[kind]
    pair.home(f"{BOX}{source}\nholder = {HELD[held]}\nother = Box([1])")
    pair.gpu("other.x.append(2)")
    with named_where_it_cannot("odd", "Odd", "holder"):
        pair.gpu(f"assert {works}\nholder")
    pair.home(f"other.x.append(3)\nassert {works}\nholder")
    assert pair.home("other.x") == [1, 2, 3]
    pair.side.status()
    pair.side.drain(30)


@pytest.mark.parametrize("kind", ODD)
def test_what_a_gpu_cell_made_and_cannot_be_looked_at_stays_there(pair, kind):
    source, works = ODD[kind]
    pair.home(f"{BOX}other = Box([1])")
    pair.gpu(f"{source}\nother.x.append(2)")
    pair.home("other.x.append(3)")
    pair.gpu(f"assert {works}\nother.x.append(4)")
    assert pair.home("other.x") == [1, 2, 3, 4]
    with named_where_it_cannot("odd", "Odd"):
        pair.home(f"assert {works}")
    pair.side.status()
    pair.side.drain(30)


def test_an_image_that_is_read_by_the_look_itself_travels(pair, tmp_path):
    """Pillow reads the file, and closes it, when the image is asked for its content."""
    pair.home(
        "from PIL import Image\n"
        f"Image.new('RGB', (4, 3)).save({str(tmp_path / 'a.png')!r})\n"
        f"image = Image.open({str(tmp_path / 'a.png')!r})"
    )
    pair.gpu("assert image.size == (4, 3)")
    assert pair.home("image.getpixel((0, 0))") == (0, 0, 0)
