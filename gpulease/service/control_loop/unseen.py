"""Devices that were given back since the provider was looked at last.

A lease may end in the record before anything of it has ended, and an older look shows nothing of
one that had only begun to start.  Owns that its devices count as taken until a look that began
later.  Refuses to know what a look shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpulease.policy.lifecycle import HOLDING
from gpulease.policy.model import Device
from gpulease.store import Change


class Unseen:
    """Keeps them from look to look."""

    def __init__(self) -> None:
        self._before: dict[str, str] = {}  # the present look, or the next one, shows them
        self._since: dict[str, str] = {}  # given back since that look began

    def moved(self, changes: Sequence[Change]) -> None:
        """Take recorded changes."""
        for change in changes:
            before, after = change.before, change.after
            if before is not None and before.state in HOLDING and after.state not in HOLDING:
                self._since |= dict.fromkeys(before.devices, after.id)

    def look_begins(self) -> None:
        """Note that what is given back from now on is not in the look that begins."""
        self._before, self._since = self._before | self._since, {}

    def looked(self) -> None:
        """Note that the look was taken: what it shows holds."""
        self._before = {}

    def marked(
        self, devices: tuple[Device, ...], known: Mapping[str, Device]
    ) -> tuple[Device, ...]:
        """Return the devices, these and all parts of their cards taken by the lease that ended.

        ``known``: the devices by their identifiers.
        """
        cards = {
            known[uuid].card or uuid: lease_id
            for uuid, lease_id in (self._before | self._since).items()
            if uuid in known
        }
        if not cards:
            return devices
        return tuple(
            replace(each, occupied_by=cards[place])
            if (place := each.card or each.uuid) in cards and each.occupied_by is None
            else each
            for each in devices
        )
