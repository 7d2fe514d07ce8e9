"""Parts of a card: how people write them, and what an ask for one is.

People ask for a part of a card as one GPU, and see it as one with its percent.  All other code
counts its parts, as it counts devices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpulease.errors import GPULeaseError
from gpulease.policy.model import GPUClass, Lease
from gpulease.texts import Text


@dataclass(frozen=True)
class Ask:
    """What a person or their notebook asked for; ``gpu_class`` ``None`` is the default class.

    ``wanted`` is how long in seconds (``None``: as long as the policy allows).  ``project`` is what
    it is charged to; ``None`` is ``charged_to``'s choice.  ``needs`` is as people write it.  The
    ``count`` devices are divided equally among ``nodes``.  With ``min_count`` of them it can live
    as well (``None``: all or nothing); of a class that is a part of a card, with ``at_least`` so
    many percent of it.  ``steps``: see ``parts.in_parts``, which alone sets them.
    """

    user: str
    server: str
    gpu_class: str | None = None
    count: int = 1
    wanted: float | None = None
    kernel_id: str | None = None
    origin: str = "magic"
    groups: tuple[str, ...] = ()
    project: str | None = None
    in_quota_only: bool = False
    server_ready: bool = True
    batch: bool = False
    needs: str = ""
    nodes: int = 1
    min_count: int | None = None
    at_least: int | None = None
    steps: tuple[int, ...] = ()


def percent(count: int, card_parts: int) -> int:
    """Return how much of a card so many of its parts are, in whole percent."""
    return round(100 * count / card_parts)


def gpus(lease: Lease) -> int:
    """Return how many GPUs a lease has or asks for: parts of one card are one."""
    return 1 if lease.card_parts else lease.count


def share(lease: Lease, count: int | None = None) -> int:
    """Return how much of its card a lease has (or would have, of ``count`` parts) in percent.

    0 where it has whole devices.
    """
    return percent(lease.count if count is None else count, lease.card_parts or 1) * bool(
        lease.card_parts
    )


def amount(lease: Lease) -> str:
    """Return what a lease is, in words: ``2 x 't4'``, ``70% of one 't4'``."""
    if lease.card_parts:
        return f"{share(lease)}% of a card ({lease.gpu_class!r})"
    return f"{lease.count} x {lease.gpu_class!r}"


def in_parts(ask: Ask, gpu_class: GPUClass) -> Ask:
    """Return an ask in the devices of its class's pool: parts of a card, where they are such.

    Raises:
        GPULeaseError: ``bad_count``: several of them, or a least that is none of its steps.
    """
    if not gpu_class.parts:
        if ask.at_least is not None:
            raise _whole(gpu_class)
        return ask
    if ask.count != 1 or ask.nodes != 1 or ask.min_count is not None:
        raise _one_card(gpu_class)
    if ask.at_least is None:
        return replace(ask, count=gpu_class.parts)
    small = [each for each in gpu_class.steps if _percent(gpu_class, each) >= ask.at_least]
    if not small and ask.at_least != _percent(gpu_class, gpu_class.parts):
        raise _no_step(gpu_class, ask.at_least)
    least = min(small, default=None)
    return replace(ask, count=gpu_class.parts, min_count=least, steps=tuple(small))


def _percent(gpu_class: GPUClass, count: int) -> int:
    return percent(count, gpu_class.card_parts)


def no_card(gpu_class: GPUClass) -> GPULeaseError:
    """Return the refusal where not a single card of a class's pool is there."""
    return _refused(
        Text("There is no GPU of class '{name}'.", name=gpu_class.name),
        Text("Ask an admin when GPUs will be there."),
    )


def _whole(gpu_class: GPUClass) -> GPULeaseError:
    return _refused(
        Text("A GPU of class '{name}' is a whole one.", name=gpu_class.name),
        Text("Ask without --at-least."),
    )


def _one_card(gpu_class: GPUClass) -> GPULeaseError:
    said = {"name": gpu_class.name, "percent": _percent(gpu_class, gpu_class.parts)}
    return _refused(
        Text("Class '{name}' is {percent}% of one card: one request has one of it.", **said),
        Text("Ask without --count, --min-count and --nodes; --at-least lets it become smaller."),
    )


def _no_step(gpu_class: GPUClass, least: int) -> GPULeaseError:
    steps = ", ".join(f"{_percent(gpu_class, each)}%" for each in gpu_class.steps)
    message = Text(
        "Class '{name}' has no step of {least}% of a card or more.",
        name=gpu_class.name,
        least=least,
    )
    step = Text("Ask without --at-least: it has no smaller steps.")
    return _refused(message, Text("Its steps are: {steps}.", steps=steps) if steps else step)


def _refused(message: Text, step: Text) -> GPULeaseError:
    return GPULeaseError("bad_count", message, next_step=step, status=422)
