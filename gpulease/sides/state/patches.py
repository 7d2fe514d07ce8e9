"""What well-known libraries change in others when a notebook says so, made on the other side, too.

A row each: how one tells that it was done, and what does it again.  A library that is not in the
table is noticed as other changes of modules are.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from typing import Any

from gpulease.sides.hushed import import_quietly


def progress_of_pandas() -> dict[str, Any]:
    """Return which bar ``tqdm.pandas()`` gave pandas, and how it was called."""
    bar = getattr(import_quietly("pandas").DataFrame, "progress_apply", None)
    if bar is None:
        return {}
    known = inspect.getclosurevars(bar).nonlocals
    kind = known["cls"]
    return {"bar": (kind.__module__, kind.__qualname__, dict(known["tqdm_kwargs"]))}


def put_progress_of_pandas(values: dict[str, Any]) -> None:
    """Give pandas this bar."""
    if values["bar"] is not None:
        module, name, options = values["bar"]
        getattr(importlib.import_module(module), name).pandas(**options)


def nested_loops() -> dict[str, Any]:
    """Return by which package the event loop may be run inside itself."""
    if not hasattr(asyncio, "_nest_patched"):
        return {}
    second = hasattr(asyncio, "_nest_asyncio2")
    return {"package": "nest_asyncio2" if second else "nest_asyncio"}


def put_nested_loops(values: dict[str, Any]) -> None:
    """Let this side's loop be run inside itself."""
    if values["package"] is not None:
        import_quietly(values["package"]).apply()
