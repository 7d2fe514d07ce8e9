"""Every exception of the package can be copied and pickled: a worker's refusal arrives."""

import copy
import importlib
import inspect
import pickle
import re
from pathlib import Path

import pytest

import gpulease

_ROOT = Path(gpulease.__file__).parent
_CLASS = re.compile(r"^class (\w+)\([^)]*(?:Error|Exception|GPU\w+)[^)]*\)", re.MULTILINE)


def _named():
    for path in sorted(_ROOT.rglob("*.py")):
        if "torch" in path.parts:
            continue  # it is not there in each environment
        module = ".".join(("gpulease", *path.relative_to(_ROOT).with_suffix("").parts))
        yield from (f"{module}:{name}" for name in _CLASS.findall(path.read_text()))


def _made(kind):
    if kind.__init__ in (Exception.__init__, AssertionError.__init__, RuntimeError.__init__):
        return kind("what happened")
    needed = [
        p
        for p in inspect.signature(kind).parameters.values()
        if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    return kind(*(f"{p.name} of it" for p in needed))


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
@pytest.mark.parametrize("named", list(_named()))
def test_an_exception_survives_the_way_to_another_process(named, way):
    module, _, name = named.partition(":")
    kind = getattr(importlib.import_module(module), name)
    if not issubclass(kind, BaseException):
        return
    error = _made(kind)
    error.add_note("a note")
    again = way(error)
    assert type(again) is kind
    assert (str(again), again.args) == (str(error), error.args)
    assert vars(again) == vars(error)


def test_a_refusal_that_was_shown_in_a_notebook_can_still_be_copied():
    from gpulease.kernel.wrap import show_as_sentence

    error = gpulease.errors.GPULeaseError(
        "no_gpu", "There is none.", next_step="Wait.", numbers={"seconds": 3}, status=503
    )
    show_as_sentence(error)
    again = pickle.loads(pickle.dumps(error))
    assert again.to_problem() == error.to_problem()
