"""What a request demands of its devices beyond their class: ``memory>=20GiB, cc>=8.0, ecc``.

Here is how it is written and when a device meets it.  What is not known of a device it does not
have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from gpulease.policy.units import format_size, parse_size

_NEED = re.compile(r"([a-z]+)\s*(?:(>=|=>|=|>|<=?)\s*(\S.*))?")
_COMPUTE = re.compile(r"(\d{1,3})(?:\.(\d{1,3}))?")
#: What may be demanded, as it is said to who wrote something else.
FORM = "Write for example memory>=20GiB, cc>=8.0 or ecc; several are divided by commas."


@dataclass(frozen=True)
class Needs:
    """Demands on each device; ``memory`` in bytes, ``compute`` is the CUDA capability."""

    memory: int = 0
    compute: tuple[int, int] = (0, 0)
    ecc: bool = False

    def __str__(self) -> str:
        """Return it as it is stored and shown: always in the same order, "" for nothing."""
        found = [f"memory>={format_size(self.memory)}"] if self.memory else []
        found += ["cc>={}.{}".format(*self.compute)] if self.compute > (0, 0) else []
        return ", ".join([*found, *(["ecc"] if self.ecc else [])])

    def met_by(self, memory: int, compute: tuple[int, int] | None, ecc: bool | None) -> bool:
        """Whether a device with these attributes will do; ``None`` is not known."""
        return (
            memory >= self.memory
            and (self.compute == (0, 0) or (compute is not None and compute >= self.compute))
            and (not self.ecc or ecc is True)
        )


@lru_cache(maxsize=1024)
def parse(text: str) -> Needs:
    """Return what a text demands; of two demands of one kind the greater.

    Raises:
        ValueError: with a sentence that may be shown.
    """
    memory, compute, ecc = 0, (0, 0), False
    for part in (each.strip() for each in text.split(",")):
        if not part:
            continue
        match = _NEED.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is no demand on a GPU.")
        name, relation, value = match.groups()
        if name == "ecc" and relation is None:
            ecc = True
        elif name == "memory" and relation == ">=":
            memory = max(memory, parse_size(value))
        elif name == "cc" and relation == ">=":
            compute = max(compute, _compute(value))
        else:
            raise ValueError(f"{part!r} is no demand on a GPU.")
    return Needs(memory, compute, ecc)


def _compute(text: str) -> tuple[int, int]:
    match = _COMPUTE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no compute capability; write for example 8.0.")
    return int(match[1]), int(match[2] or 0)
