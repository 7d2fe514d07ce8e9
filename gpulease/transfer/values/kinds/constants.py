"""Texts that a library compares by ``is``: one that travels must be the library's own again.

Owns which these are, and of which types the objects are that may hold one.
"""

from __future__ import annotations

import argparse
import functools
import operator
import sys
from collections.abc import Iterable
from typing import Any

_HOLDERS = (argparse.Action, argparse._ActionsContainer, argparse.Namespace)  # noqa: SLF001
_CONSTANTS = {id(argparse.SUPPRESS): "argparse.SUPPRESS"}


def may_be_in(objects: Iterable[Any]) -> bool:
    """Say whether one of these objects may hold such a text."""
    return any(map(_may_hold, set(map(type, objects))))


@functools.cache
def _may_hold(kind: type) -> bool:
    return issubclass(kind, _HOLDERS)


def name_of(text: str) -> str | None:
    """Return module and attribute of a text that is one of these, else None."""
    return _CONSTANTS.get(id(text))


def find(name: str) -> Any:
    """Return this side's own."""
    module, _, attribute = name.partition(".")
    return operator.attrgetter(attribute)(sys.modules[module])
