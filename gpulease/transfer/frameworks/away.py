"""Arrays and frames whose values stay on the GPU for their size: home shows all but the values.

``transfer_next.torch.valueless`` has the same for tensors.
"""

from __future__ import annotations

from typing import Any

from gpulease.transfer_next.refuse import RefusedError
from gpulease.transfer_next.valueless import SMALL, Valueless, facts_of, stand_in, told_of

from .base import Aside, Inside, Packing

__all__ = ["SMALL", "reduction"]


def reduction(obj: Any, label: str, *, of_frame: bool = False) -> Any:
    """Return the reduction of an array, or a frame, to what is told of it."""
    return stand_in, (label, type(obj), told_of(obj, is_frame=of_frame))


class _Standing(Aside):
    """See ``base.Framework``: what stands for values is never more than that."""

    def claims(self, kind: type) -> bool:
        return kind is Valueless

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        return Inside([])

    def reduce(self, obj: Any, packing: Packing) -> Any:
        facts = facts_of(obj)
        if not packing.structure:
            raise RefusedError(f"the structure of {facts.label} alone: its values are on the GPU")
        return stand_in, tuple(facts)


FRAMEWORK = _Standing()
