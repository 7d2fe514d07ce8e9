"""Code that travels is found in the text that it came from, with each cloudpickle that fits."""

import cloudpickle
import pytest


def _leaves_the_file_out(code):
    """Reduce code as cloudpickle does from 3.1.3 on."""
    make, args, *rest = _REDUCE(code)
    return make, tuple("<dynamic-code>" if a == code.co_filename else a for a in args), *rest


_REDUCE = cloudpickle.Pickler.dispatch_table[type(_leaves_the_file_out.__code__)]


@pytest.mark.parametrize("reduce", [_REDUCE, _leaves_the_file_out], ids=["installed", "newer"])
def test_a_function_keeps_the_name_of_its_file(pair, monkeypatch, reduce):
    code = type(_leaves_the_file_out.__code__)
    monkeypatch.setitem(cloudpickle.Pickler.dispatch_table, code, reduce)
    pair.home(
        "def outer():\n    def inner(): return 1\n    return inner\n"
        "names = lambda: [outer.__code__.co_filename, outer().__code__.co_filename]"
    )
    pair.gpu("there = names()")
    assert pair.home("there == names()")
