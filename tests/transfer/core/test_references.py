"""What is held besides a table, on whichever Python this runs."""

from pathlib import Path

import pytest

import gpulease
from gpulease.transfer.tables import references

HOLDERS = {
    "nothing": lambda _: None,
    "a list": lambda obj: [obj],
    "an attribute": lambda obj: setattr(keeper := lambda: None, "kept", obj) or keeper,
    "a closure": lambda obj: lambda: obj,
    "a generator that waits": lambda obj: _waiting(obj),
    "a default": lambda obj: lambda given=obj: given,
}


def _waiting(obj):
    def wait():
        kept = obj
        yield
        return kept

    return started(wait())


def started(generator):
    next(generator)
    return generator


@pytest.mark.parametrize("make", [object, list, lambda: [object()], lambda: type("C", (), {})()])
def test_what_only_its_table_holds_has_no_other_reference(make):
    table = {name: make() for name in "ab"}
    assert references(table) == {"a": 0, "b": 0}


@pytest.mark.parametrize("holder", HOLDERS)
def test_each_holder_counts(holder):
    table = {0: object()}
    keeper = HOLDERS[holder](table[0])
    assert (references(table)[0] > 0) == (keeper is not None)


def test_a_second_entry_and_a_local_variable_count():
    table = {"a": object()}
    table["b"] = table["a"]
    assert references(table, ["a"]) == {"a": 1}
    local = table["a"]
    assert references(table, ["b"]) == {"b": 2}
    assert local is table["b"]


def test_one_place_counts_references():
    root = Path(gpulease.__file__).parent
    found = [path for path in root.rglob("*.py") if "getrefcount" in path.read_text()]
    assert [path.name for path in found] == ["tables.py"]
