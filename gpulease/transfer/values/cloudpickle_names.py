"""The parts of cloudpickle that say which classes and functions travel by name.

Owns nothing: it names in one place what is used beyond cloudpickle's public interface, so that a
new version of it is checked here.
"""

from __future__ import annotations

from typing import Any

from cloudpickle import cloudpickle as _cp

by_reference: Any = _cp._should_pickle_by_reference  # noqa: SLF001


def is_named(kind: Any) -> bool:
    """Say whether a class is found again by its name."""
    return bool(by_reference(kind)) or kind in _cp._BUILTIN_TYPE_NAMES  # noqa: SLF001
