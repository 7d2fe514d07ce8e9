"""The second engine's judge of sizes, for what the first one has in its ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpulease.transfer.values.packing.ledger import Absent
from gpulease.transfer_next import large
from gpulease.transfer_next.api import Note
from gpulease.transfer_next.engine import Away


class Large(large.Large):
    """Home's judge of sizes."""

    def marked(self, absent: Absent) -> Absent:
        """Return ``absent`` with the reason why it stays away, where that is its size."""
        blocker = self.why(_away(absent))
        return absent if blocker == absent.blocker else replace(absent, blocker=blocker)

    def notes_of(self, remote: Mapping[str, Absent]) -> list[Note]:
        """Return what is to be said of values that stay there since the last call."""
        away = {name: _away(absent) for name, absent in remote.items()}
        return self.notes(away, away)


def _away(absent: Absent) -> Away:
    return Away(absent.blocker, not absent.blocker, size=absent.size)
