"""The names that ``transfer.private`` stands on; a version without one must fail here.

Python 3.11 to 3.14 have those of ``abc`` and ``enum``; matplotlib 3.10 to 3.11 those of its
register of callbacks.
"""

import abc
import enum

import pytest

from gpulease.transfer import private
from gpulease.transfer.refuse import RefusedError


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self):
        """Return its size."""


@Shape.register
class Square:
    pass


class Colour(enum.Flag):
    RED = 1
    BLUE = 2


def test_python_names_who_is_registered_with_an_abstract_class(monkeypatch):
    assert private.registered(Shape) == [Square]
    monkeypatch.delattr(abc, "_get_dump")
    with pytest.raises(RefusedError, match="abstract class"):
        private.registered(Shape)


def test_python_keeps_the_members_of_an_enumeration_in_two_maps(monkeypatch):
    both = Colour.RED | Colour.BLUE
    assert private.by_value(Colour)[3] is both
    assert vars(Colour)["_member_map_"] == Colour.__members__
    monkeypatch.setattr(private, "ENUM_MAPS", ("_none_",))
    with pytest.raises(RefusedError, match="enumeration"):
        private.by_value(Colour)


def test_matplotlib_says_in_its_own_pickle_how_callbacks_are_kept():
    registry = pytest.importorskip("matplotlib.cbook").CallbackRegistry()
    seen = []
    registry.connect("changed", seen.append)
    make, made_from, state = private.reduce_callbacks(registry)
    assert private.reduce_callbacks(registry)[2]["_cid_gen"] == state["_cid_gen"]
    copy = make(*made_from)
    copy.__setstate__(state)
    copy.process("changed", 5)
    assert seen == [5]
    assert copy.connect("changed", print) not in registry.callbacks["changed"]

    class Other(type(registry)):
        def __getstate__(self):
            return {}

    with pytest.raises(RefusedError, match="matplotlib"):
        private.reduce_callbacks(Other())
