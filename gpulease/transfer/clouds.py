"""The parts of cloudpickle that take classes apart and put them together.

Owns nothing: it names in one place what is used beyond cloudpickle's public interface, so that a
new version of it is checked here.
"""

from __future__ import annotations

from typing import Any

from cloudpickle import cloudpickle as _cp

BUILTIN_TYPES: Any = _cp._BUILTIN_TYPE_NAMES  # noqa: SLF001
by_reference: Any = _cp._should_pickle_by_reference  # noqa: SLF001
enum_arguments: Any = _cp._enum_getnewargs  # noqa: SLF001
enum_state: Any = _cp._enum_getstate  # noqa: SLF001
make_enum: Any = _cp._make_skeleton_enum  # noqa: SLF001
set_class_state: Any = _cp._class_setstate  # noqa: SLF001
