"""Random generators: there is one on each side, and the state is written into it."""

from __future__ import annotations

from typing import Any

import torch

from gpulease.transfer.frameworks.base import Packing, Stage, staged


def reduce(obj: torch.Generator, packing: Packing) -> Any:
    """Return the reduction of a generator; that of a device's is its own."""
    if obj is torch.default_generator:
        return getattr, (torch, "default_generator")
    if obj.device.type != "cpu":
        return NotImplemented
    # Not by its own __setstate__, which keeps two references to it for good (torch 2.15).
    return generator, (packing.lasting_oid(obj), bytes(obj.get_state().numpy()))


@staged
def generator(stage: Stage, oid: str, state: bytes) -> torch.Generator:
    """Return this side's generator, which gets its state at the commit, or a new one."""
    found = stage.live(oid)
    made = found if type(found) is torch.Generator else stage.make(oid, torch.Generator())
    stage.scratch.setdefault("generators", []).append((made, state))
    return made


def apply(stage: Stage) -> None:
    """Write the states."""
    for made, state in stage.scratch.pop("generators", []):
        made.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
