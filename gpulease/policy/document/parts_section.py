"""Parts of cards, in the policy document::

    pools: {cards: {parts: 10, evidence: cells}}
    classes: {large: {pool: cards, parts: 7, steps: [4]}}  # 70 % of a card, or 40 % of it

Owns their form and what goes with them.  A class without ``parts`` has a whole card.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpulease.policy.document.nodes import Reader
from gpulease.policy.offer import GPUClass, Pool
from gpulease.policy.pods import HAMI_SPLIT, PodAsk, hami_whole, is_hami
from gpulease.texts import Text

#: A card has no more parts than this: a percent is what people read.
_MOST = 100


@dataclass(frozen=True)
class Parts:
    """How much of a card one GPU of a class is, and with how much less a lease can go on."""

    parts: int = 0
    card_parts: int = 0
    steps: tuple[int, ...] = ()


def read_pool_parts(pool: Reader) -> int:
    """Read into how many parts a pool's cards are divided, 0 where they are whole."""
    parts = pool.whole("parts", 0, least=0)
    if parts == 1 or parts > _MOST:
        message = Text("A card is divided into 2 to {most} parts.", most=_MOST)
        pool.wrong("parts", message, Text("Write for example `parts: 10`."))
        return 0
    if parts and "elastic" in pool.names:
        message = Text("A pool of parts of cards does not grow by itself.")
        pool.wrong("elastic", message, Text("Remove `elastic` or `parts`."))
    return parts


def read_parts(section: Reader, pool: Pool | None, ask: PodAsk | None, max_count: int) -> Parts:
    """Read the parts of a class; what is wrong is noted."""
    card = pool.parts if pool is not None else 0
    if not card:
        for key in ("parts", "steps"):
            if key in section.names and pool is not None:
                message = Text("The cards of pool {pool} have no parts.", pool=pool.name)
                step = Text("Write for example `parts: 10` at pool {pool}.", pool=pool.name)
                section.wrong(key, message, step)
        return Parts()
    parts = section.whole("parts", card, least=1)
    if parts > card:
        message = Text("A card of this pool has {parts} parts.", parts=card)
        section.wrong("parts", message, Text("Write at most {parts}.", parts=card))
        parts = card
    _alone(section, ask, max_count)
    return Parts(parts, card, _steps(section, parts))


def _steps(section: Reader, parts: int) -> tuple[int, ...]:
    def step(raw: str) -> str:
        if not raw.isdecimal() or not 0 < int(raw) < parts:
            raise ValueError(
                Text("a step is a whole number of parts, fewer than {parts}.", parts=parts)
            )
        return raw

    found = {int(each) for each in section.texts("steps", step)}
    return tuple(sorted(found, reverse=True))


def _alone(section: Reader, ask: PodAsk | None, max_count: int) -> None:
    """Note what does not go with parts: several cards, what stands ready, what enforces nothing."""
    if max_count > 1:
        message = Text("A lease of parts has one card.")
        section.wrong("max_count", message, Text("Remove `max_count`."))
    if "warm" in section.names:
        message = Text("No pods stand ready for parts of cards.")
        section.wrong("warm", message, Text("Remove `warm`."))
    if ask is not None and ask.queue is not None:
        message = Text("A cluster's queue knows no parts of cards.")
        section.wrong("pod", message, Text("Give the class a pool of whole devices."))
    if ask is not None and not is_hami(ask):
        message = Text(
            "Nothing keeps to parts of a card with kind {kind}: time slices have no size, and the "
            "replicas of MPS are all alike.",
            kind=ask.kind.value,
        )
        section.wrong("pod", message, Text("Write `pod: {preset}`.", preset="{hami: {}}"))
    elif ask is not None and not hami_whole(ask):
        message = Text("How much of a card it is say the class's parts.")
        section.wrong("pod", message, Text("Write `pod: {preset}`.", preset="{hami: {}}"))


def counted_in_parts(section: Reader, pool: Pool | None, ask: PodAsk | None) -> PodAsk | None:
    """Return a class's ask with one part as its slot; what HAMi cannot show so is noted."""
    if ask is None or pool is None or not pool.parts or not is_hami(ask):
        return ask
    if "slot_units" in section.section("pod", None).names:
        return ask
    if HAMI_SPLIT % pool.parts:
        section.wrong(
            "pod",
            Text("HAMi shows a card as {split} devices, not {parts}.", split=HAMI_SPLIT,
                 parts=pool.parts),
            Text("Write 2, 5 or 10 `parts` at the pool, or `slot_units`: so many make a part."),
        )  # fmt: skip
        return ask
    return replace(ask, slot_units=HAMI_SPLIT // pool.parts)


def check_fallback(gpu_class: GPUClass, others: Mapping[str, GPUClass], section: Reader) -> None:
    """Note fall-backs that are of another number of parts: a lease keeps its own."""
    for name in gpu_class.fallback:
        other = others.get(name)
        if other is not None and _shape(other) != _shape(gpu_class):
            message = Text("'{other}' has not the same parts of a card as {name}.", other=name,
                           name=gpu_class.name)  # fmt: skip
            section.wrong("fallback", message, Text("Name classes with the same parts and steps."))


def _shape(gpu_class: GPUClass) -> Parts:
    return Parts(gpu_class.parts, gpu_class.card_parts, gpu_class.steps)


def pool_parts_tree(pool: Pool) -> dict[str, Any]:
    """Return the pool's parts as the document has them."""
    return {"parts": pool.parts} if pool.parts else {}


def parts_tree(gpu_class: GPUClass) -> dict[str, Any]:
    """Return the class's parts as the document has them."""
    parts = {"parts": gpu_class.parts} if gpu_class.parts else {}
    return parts | ({"steps": list(gpu_class.steps)} if gpu_class.steps else {})
