"""What a lease may take of a card that it shares: the memory of its class, and more while it harms
nobody.

Two rules.  *Beyond its share* is a lease that holds more memory than its class has, by
more than a slack.  *It harms* when what is left of the card is less than what the other leases
there have not taken of their own shares; of several that are beyond theirs the one that is furthest
beyond does.  Compute is no matter of these rules: cards are shared in turns, or MPS and MIG bound
it.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: A share may be passed by this part of it: drivers and libraries round up.
SLACK = 0.05


@dataclass(frozen=True)
class Tenant:
    """One lease on one card.  ``share``, ``used`` and ``left`` (of the whole card) in bytes."""

    lease: str
    card: str
    share: int
    used: int
    left: int

    @property
    def beyond(self) -> int:
        """How much it holds beyond its share (bytes), 0 within the slack or without a share."""
        excess = self.used - self.share
        return excess if self.share and excess > SLACK * self.share else 0


@dataclass(frozen=True)
class Excess:
    """What a lease holds of a card (``used``) beyond its ``share``, and whether others lack it."""

    used: int
    share: int
    harms: bool


def excesses(tenants: Iterable[Tenant]) -> Mapping[str, Excess]:
    """Return what of each lease is beyond its share; of several cards the worst."""
    by_card: dict[str, list[Tenant]] = {}
    for tenant in tenants:
        by_card.setdefault(tenant.card, []).append(tenant)
    found: dict[str, Excess] = {}
    for there in by_card.values():
        worst = max(there, key=lambda each: (each.beyond, each.lease))
        lacking = sum(max(0, x.share - x.used) for x in there if x.lease != worst.lease)
        for tenant in there:
            if not tenant.beyond:
                continue
            harms = tenant is worst and lacking > tenant.left
            excess = Excess(tenant.used, tenant.share, harms)
            known = found.get(tenant.lease)
            if known is None or _grade(known) < _grade(excess):
                found[tenant.lease] = excess
    return found


def _grade(excess: Excess) -> tuple[bool, int]:
    return excess.harms, excess.used - excess.share
