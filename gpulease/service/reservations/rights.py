"""Who may see, make and change a reservation, and whom one may name."""

from __future__ import annotations

from collections.abc import Callable

from gpulease.errors import GPULeaseError
from gpulease.hub_names import split
from gpulease.policy.calendar.reservation import Reservation
from gpulease.policy.model import PolicyDocument
from gpulease.service.hubs.auth import Asker
from gpulease.service.schemas.reservation_bodies import ChangeBody, ReservationBody


class Rights:
    """Answers for the policy in force.

    Args:
        policy: gives that document.
    """

    def __init__(self, policy: Callable[[], PolicyDocument]) -> None:
        self._policy = policy

    def may_see(self, asker: Asker, reservation: Reservation) -> bool:
        """Tell whether somebody manages a reservation, or may claim its seats."""
        own = reservation.group in asker.groups or asker.name in reservation.named
        return self.may_manage(asker, reservation) or own

    def may_manage(self, asker: Asker, reservation: Reservation) -> bool:
        """Tell whether somebody may change a reservation."""
        return asker.name in reservation.managers or self.may_reserve(asker, reservation.group)

    def may_reserve(self, asker: Asker, group: str) -> bool:
        """Tell whether somebody may reserve for a group: its instructors, managers and admins."""
        managed = self._policy().reservations.managed_by(asker.name)
        return asker.teaches(group) or asker.admin or group in managed

    def allow(self, asker: Asker, body: ReservationBody, before: Reservation | None = None) -> None:
        """Refuse who may not reserve for a group, and people whom they may not name.

        Args:
            asker: who reserves.
            body: what.
            before: the reservation of that name that is there already.

        Raises:
            GPULeaseError: ``may_not_reserve``, ``not_your_hub`` (403).
        """
        if not self.may_reserve(asker, body.group):
            raise may_not(body.group)
        self.keep_to_their_hub(asker, body, before)

    def keep_to_their_hub(self, asker: Asker, body: ChangeBody, before: Reservation | None) -> None:
        """Refuse people of another hub, but those whom the reservation names already.

        Admins may name anybody.

        Raises:
            GPULeaseError: ``not_your_hub`` (403).
        """
        if asker.admin or not asker.names.further:
            return
        kept = set[str]()
        if before is not None and self.may_manage(asker, before):
            kept = {*before.named, *before.managers, *dict(before.extra_time)}
        told = {*(body.named or ()), *(body.managers or ()), *(body.extra_time or ())}
        foreign = sorted(each for each in told - kept if split(each)[0] != asker.names.hub)
        if foreign:
            own = f"{asker.names.hub}/NAME" if asker.names.hub else "their names alone"
            raise GPULeaseError(
                "not_your_hub",
                f"{foreign[0]} is nobody of your hub.",
                next_step=f"Name people of your hub: {own}.",
                numbers={"user": foreign[0]},
                status=403,
            )


def may_not(group: str) -> GPULeaseError:
    """Return the refusal of who may not reserve for a group."""
    return GPULeaseError(
        "may_not_reserve",
        f"You may not reserve GPUs for {group}.",
        next_step=f"Ask an admin to name you an instructor of {group}.",
        numbers={"group": group},
        status=403,
    )
