"""The parts of a card: their names are the card's own and a number.

The policy says which cards are divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gpulease.policy.model import Device

_MARK = "::"


def parts_of(card: str, parts: int) -> list[str]:
    """Return the names of a card's parts, its own where it is not divided."""
    return [f"{card}{_MARK}{number:02}" for number in range(parts)] if parts else [card]


def card_of(name: str) -> str:
    """Return the card that a device is a part of, or is."""
    return name.partition(_MARK)[0]


def overlap(one: str, other: str) -> bool:
    """Whether two devices are the same, or one is a part of the other: a policy may have changed
    between two leases.
    """
    whole = card_of(one) in (one, other) or card_of(other) in (one, other)
    return one == other or (whole and card_of(one) == card_of(other))


def divided(devices: Iterable[Device], parts: Mapping[str, int]) -> Iterator[Device]:
    """Yield the devices as a policy has them that divides the cards of some pools."""
    seen: set[str] = set()
    for device in devices:
        wanted = parts.get(device.pool, 0)
        if device.card_parts == wanted:
            yield device
            continue
        card = device.card or device.uuid
        for name in parts_of(card, wanted) if card not in seen else ():
            yield replace(device, uuid=name, card=card if wanted else "", card_parts=wanted)
        seen.add(card)
