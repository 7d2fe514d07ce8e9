"""Objects that are their attributes, and attributes that are another value for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


def new(cls: type) -> Any:
    """Return an empty instance."""
    made_by: Any = cls.__new__
    return made_by(cls)


def set_attributes(obj: Any, state: dict[str, Any]) -> None:
    """Give an instance its attributes, by none of its own ways."""
    obj.__dict__.update(state)


@contextmanager
def each_set(objects: Iterable[Any], name: str, value: Any) -> Iterator[None]:
    """Set an attribute of objects for the body, and put back what it was."""
    olds = [(obj, getattr(obj, name)) for obj in objects if getattr(obj, name) is not value]
    for obj, _ in olds:
        setattr(obj, name, value)
    try:
        yield
    finally:
        for obj, old in olds:
            setattr(obj, name, old)
