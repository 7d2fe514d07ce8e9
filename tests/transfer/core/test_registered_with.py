"""A library is not asked for its abstract classes where none of the notebook's is registered."""

import abc
import sys
import types

from gpulease.transfer import classes


class Warns(types.ModuleType):
    """As a library's module that warns of what it gives up."""

    def __getattribute__(self, name):
        if name == "Old":
            raise DeprecationWarning(name)
        return super().__getattribute__(name)


def test_a_module_is_not_asked_for_what_it_warns_of(monkeypatch):
    module = Warns("its_warns")
    monkeypatch.setitem(sys.modules, "its_warns", module)
    old = abc.ABCMeta("Old", (), {"__module__": "its_warns"})
    old.register(str)
    mine = type("Mine", (), {"__module__": "__main__"})
    assert classes.abstract_classes_of(mine) == []
