"""The object ``gpu``: ``with gpu():`` and ``@gpu.run``, at home and on a GPU."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.protocol.names import ENV_LEASE

ALTERNATIVES = (
    "Put the block at the top level of a cell, start the cell with %%gpu, or decorate the function "
    "with @gpu.run."
)


class GPUBlock:
    """What ``gpu(...)`` returns; on a GPU it does nothing, at home it refuses to be entered."""

    def __enter__(self) -> None:
        if ENV_LEASE not in os.environ:
            raise GPULeaseError(
                "block_not_at_top_level",
                "with gpu(): cannot be sent away from inside a function or a class.",
                next_step=ALTERNATIVES,
            )

    def __exit__(self, *_: object) -> None:
        return None


class GPUFunction:
    """A function decorated with ``@gpu.run``: called at home, it runs on a GPU.

    In a GPU cell, and when it is carried to the companion, it is the plain function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function away and return its result, brought home.

        Raises:
            GPULeaseError: when no GPU can be had, or a value cannot travel.
        """
        if gpu.away is None:  # on the GPU already
            return self._function(*args, **kwargs)
        return gpu.away(self._function, args, kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> tuple[object, ...]:
        return GPUFunction, (self._function,)


class GPU:
    """The object ``gpu`` of every notebook.

    Attributes:
        away: runs a function on the GPU; None beside one, and in a plain process.
    """

    away: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any] | None = None

    def __call__(self, gpu_class: str | None = None, **options: Any) -> GPUBlock:  # noqa: ARG002
        """Return a block that runs on a GPU: ``with gpu(): ...``.

        Options are those of ``%%gpu``: ``gpu_class``, ``count``, ``wait`` (seconds or ``"5m"``).
        """
        return GPUBlock()

    def run(self, function: Callable[..., Any]) -> GPUFunction:
        """Make each call of ``function`` run on a GPU: ``@gpu.run``."""
        return GPUFunction(function)

    def __reduce__(self) -> str:
        return "gpu"  # there is one, on either side

    def __repr__(self) -> str:
        return "<gpu: with gpu(): ..., @gpu.run, %%gpu, %gpu>"


gpu = GPU()
