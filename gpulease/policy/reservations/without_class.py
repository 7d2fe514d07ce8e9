"""Reservations whose class a policy does not offer: they stay, and nobody has a seat of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from gpulease.policy.calendar.reservation import Reservation
from gpulease.policy.model import PolicyDocument
from gpulease.texts import Text

STEP = Text("Change its class, or cancel it.")


def without_class(
    reservations: Iterable[Reservation], policy: PolicyDocument, now: datetime
) -> Iterator[Reservation]:
    """Yield those that have windows ahead, and no class in the policy."""
    for each in reservations:
        if not each.cancelled and each.gpu_class not in policy.by_name and each.over > now:
            yield each


def sentence_of(reservation: Reservation) -> Text:
    """Say that nobody has a seat of it."""
    return Text(
        "{name} of {group} has no GPUs: class '{gpu_class}' is not offered.",
        name=reservation.name,
        group=reservation.group,
        gpu_class=reservation.gpu_class,
    )
