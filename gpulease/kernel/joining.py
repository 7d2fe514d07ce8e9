"""What a supervisor pushes between a companion's opening and its first answer.

A death ends the joining at once instead of after its time-out; everything else (a warning, a drain)
is kept until the companion is attached.  Main thread only.
"""

from __future__ import annotations

from collections.abc import Callable

from gpulease.errors import GPULeaseError
from gpulease.kernel.control import Push

_DEATHS = ("companion_died", "lost", "end")


class Joining:
    """The pushes of one companion that is being joined; ``fail`` ends a wait for its answer."""

    def __init__(self, fail: Callable[[GPULeaseError], None]) -> None:
        self._fail = fail
        self._pushes: list[Push] = []

    def begin(self) -> None:
        """Another companion is being opened."""
        self._pushes.clear()

    def take(self, push: Push) -> None:
        """Keep a push until there is an attachment to apply it to."""
        self._pushes.append(push)
        if push["push"] in _DEATHS:
            self._fail(_dead(push))

    def check(self) -> None:
        """Raise if the companion is gone already.

        Raises:
            GPULeaseError: ``companion_died``.
        """
        for push in self._pushes:
            if push["push"] in _DEATHS:
                raise _dead(push)

    def rest(self) -> list[Push]:
        """Return what came meanwhile, in order, and forget it."""
        pushes, self._pushes = self._pushes, []
        return pushes


def _dead(push: Push) -> GPULeaseError:
    detail = push.get("detail") or push.get("sentence") or "its process ended"
    return GPULeaseError(
        "companion_died",
        f"The companion of this notebook died before it was connected: {detail}.",
        next_step="Run the cell again: the next GPU cell gets a new companion.",
        status=410,
    )
