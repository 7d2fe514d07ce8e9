"""How many shares of a class HAMi has room for on a node.

A card of HAMi shows as several replicas of one resource, and a share never spans two cards, so
replicas alone do not tell how many shares fit.
https://github.com/Project-HAMi/HAMi/blob/master/docs/develop/protocol.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, Final

from gpulease.policy.pods import HAMI_SPLIT, PodAsk, slot_units_of
from gpulease.policy.pods import hami as preset
from gpulease.providers.kubernetes.observed.pods import amount_of

#: A node's cards: their uuid, replicas, MiB, percents of compute, model, NUMA node, health ...
CARDS: Final = "hami.io/node-nvidia-register"
MEMORY: Final = "nvidia.com/gpumem"
MEMORY_PERCENT: Final = "nvidia.com/gpumem-percentage"
CORES: Final = "nvidia.com/gpucores"
#: The event by which its scheduler tells why no node was found.
FILTERED: Final = "FilteringFailed"
#: Its scheduler's words for a card that would do and is in use.
_IN_USE: Final = (
    "CardInsufficientMemory",
    "CardInsufficientCore",
    "CardTimeSlicingExhausted",
    "CardComputeUnitsExhausted",
    "ExclusiveDeviceAllocateConflict",
    "AllocatedCardsInsufficientRequest",
)
#: What it says in place of each of them in the scheduler's own message.
_UNFIT: Final = "NodeUnfitPod"
_NEVER: Final = ("CardTypeMismatch", "CardUuidMismatch", "NodeInsufficientDevice")


@dataclass(frozen=True)
class Card:
    """One card as HAMi counts it; memory in MiB, cores in percent."""

    replicas: int
    memory: int
    cores: int
    healthy: bool = True


@dataclass(frozen=True)
class Share:
    """What one share of a class is: ``memory`` in MiB where not 0, else a percent of a card's."""

    memory: int
    percent: int
    cores: int

    def fits(self, card: Card) -> int:
        """Return how many such shares a card has room for."""
        memory = self.memory or card.memory * self.percent // 100
        by_memory = card.memory // memory if memory else card.replicas
        by_cores = card.cores // self.cores if self.cores else card.replicas
        return min(card.replicas, by_memory, by_cores)

    def of(self, card: Card) -> Fraction:
        """Return the part of a card that it fills, of what it fills most."""
        memory = Fraction(self.memory, card.memory or 1)
        parts = (
            memory if self.memory else Fraction(self.percent, 100),
            Fraction(self.cores, card.cores or 1),
            Fraction(1, card.replicas or 1),
        )
        return min(Fraction(1), max(parts))


@dataclass(frozen=True)
class Shares:
    """The room for a class's shares on one node."""

    share: Share
    cards: tuple[Card, ...]

    @property
    def total(self) -> int:
        """How many fit the node when nobody else is there."""
        return sum(self.room)

    @property
    def room(self) -> tuple[int, ...]:
        """How many fit each card when nobody else is there."""
        return tuple([self.share.fits(card) for card in self.cards])

    @property
    def ready(self) -> int:
        """How many fit the cards that work."""
        return sum(self.share.fits(card) for card in self.cards if card.healthy)

    def taken(self, resource: str, asks: Mapping[str, int]) -> int:
        """Return how many shares no longer fit because of another's pod: the most it can be."""
        card = max(self.cards, key=self.share.fits)
        each = ceil(_share(asks).of(card) / self.share.of(card))
        return asks[resource] * min(self.share.fits(card), each)


def shares_of(node: Mapping[str, Any], resource: str, ask: PodAsk) -> Shares | None:
    """Return the room for a class on a node; ``None`` where the class is no fraction under HAMi.

    Where HAMi has not told of its cards, each is taken to show as many replicas as by default;
    a class's own ``slot_units`` counts in its place.
    """
    asked = {name: int(value) for name, value in ask.extra_resources}
    if not asked.keys() & {MEMORY, MEMORY_PERCENT, CORES}:
        return None
    share = _share(asked)
    cards = tuple(_cards(str((node["metadata"].get("annotations") or {}).get(CARDS, ""))))
    if cards:
        return Shares(share, cards)
    if share.memory or slot_units_of(ask) != slot_units_of(preset(share.percent, share.cores)):
        return None
    status = node.get("status") or {}
    shown, working = (
        amount_of((status.get(kind) or {}).get(resource, 0)) // HAMI_SPLIT
        for kind in ("capacity", "allocatable")
    )
    return Shares(share, tuple(Card(HAMI_SPLIT, 100, 100, n < working) for n in range(shown)))


def no_room(message: str, events: Iterable[Mapping[str, Any]]) -> bool:
    """Whether HAMi found no room for a pod that another time would fit.

    Args:
        message: the scheduler's.
        events: about the pod; HAMi's own tell more than the message does.
    """
    if any(word in message for word in _IN_USE):
        return True
    if _UNFIT not in message:
        return False
    told = " ".join(str(each.get("message") or "") for each in events if _filtered(each))
    in_use = any(word in told for word in _IN_USE)
    return in_use or not any(word in told for word in _NEVER)


def _filtered(event: Mapping[str, Any]) -> bool:
    return event.get("reason") == FILTERED


def _share(asked: Mapping[str, int]) -> Share:
    """Return what a pod's resources ask for; without a word of memory it is a card's whole one."""
    memory = asked.get(MEMORY, 0)
    return Share(memory, 0 if memory else asked.get(MEMORY_PERCENT, 100), asked.get(CORES, 0))


def _cards(text: str) -> Iterable[Card]:
    """Yield the cards of a node's annotation; what is no card of this form is none."""
    for each in text.split(":"):
        words = each.split(",")
        numbers = words[1:4]
        if len(words) >= 7 and all(word.isdecimal() for word in numbers):
            replicas, memory, cores = map(int, numbers)
            yield Card(replicas, memory, cores, words[6].strip().lower() == "true")
