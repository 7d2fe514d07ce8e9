"""What the simulated people do: they think, run GPU cells, wait, give up and close their notebooks.

A grant, a reclaim and an end change when each of them acts.  Leases are requested and servers
closed through a port that the replay gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gpulease.errors import GPULeaseError
from gpulease.policy.model import EndReason, Lease, LeaseState
from gpulease.simulate.clock import Clock
from gpulease.simulate.outcome import Tally
from gpulease.simulate.people import Person, Phase

#: Somebody who was refused asks again after so many seconds.
AGAIN = 60.0


class Site(Protocol):
    """The lease service as the people see it."""

    def lease_of(self, person: Person) -> Lease | None:
        """Return the person's present lease or request."""

    def ask(self, person: Person) -> None:
        """Ask for a GPU; it may be granted at once.

        Raises:
            GPULeaseError: the ask is refused.
        """

    def used(self, lease: Lease) -> None:
        """Hear that a lease which had been warned is used again."""

    def rests(self, person: Person, lease: Lease, until: float | None) -> None:
        """Hear that an active lease is idle, until its person comes back where that is known."""

    def closed(self, person: Person) -> None:
        """End the person's notebook server."""


class Crowd:
    """All people of a replay.

    Args:
        people: each with something to do.
        clock: the replay's.
        tally: counts what happens to them.
        site: the lease service.
        grain: seconds after which an interrupted cell is run again.
    """

    def __init__(
        self, people: Sequence[Person], clock: Clock, tally: Tally, site: Site, grain: float
    ) -> None:
        self.people = people
        self._clock = clock
        self._tally = tally
        self._site = site
        self._grain = grain
        for person in self.people:
            clock.at(person.first(), self._unless_changed(person, self._want))

    def _unless_changed(self, person: Person, act: Callable[[Person], None]) -> Callable[[], None]:
        """Return what lets a person act, unless something else has happened to them by then."""
        serial = person.serial

        def acted() -> None:
            if person.serial == serial:
                act(person)

        return acted

    # --- what happens to them

    def granted(self, person: Person) -> None:
        """Let a person who waits use their GPU."""
        self._tally.waited(person, self._clock.t)
        self._begin(person)

    def drains(self, person: Person, lease: Lease) -> None:
        """Take the GPU from a person; a cell that ran is interrupted and run again."""
        if lease.end_reason_wanted is EndReason.IDLE:
            person.taken = self._clock.t
        self._interrupted(person)

    def ended(self, person: Person, lease: Lease) -> None:
        """Hear that a lease or request is over."""
        if person.lease != lease.id:
            return  # they have another one already
        person.lease = None
        if person.phase is Phase.WAITING:  # denied, or it could not be started
            person.serial += 1
            self._clock.after(AGAIN, self._unless_changed(person, self._want))
        self._interrupted(person)

    def _interrupted(self, person: Person) -> None:
        if person.phase is Phase.BUSY:
            self._tally.used(person, person.stops(self._clock.t))
            self._clock.after(self._grain, self._unless_changed(person, self._want))

    # --- what they do

    def _want(self, person: Person) -> None:
        """Run a GPU cell: on the lease that is there, else ask for one."""
        person.wants(self._clock.t)
        lease = self._site.lease_of(person)
        if lease is not None and lease.state in (LeaseState.ACTIVE, LeaseState.WARNED):
            self._begin(person)
            self._site.used(lease)
            return
        self._tally.asked(person, self._clock.t)
        if person.gives_up_after is not None:
            self._clock.after(person.gives_up_after, self._unless_changed(person, self._give_up))
        self._ask(person)

    def _ask(self, person: Person) -> None:
        try:
            self._site.ask(person)
        except GPULeaseError as error:
            self._tally.refused(error.reason)
            self._clock.after(AGAIN, self._unless_changed(person, self._ask))

    def _give_up(self, person: Person) -> None:
        self._tally.gave_up(person, self._clock.t)
        self._leave(person)

    def _begin(self, person: Person) -> None:
        over = person.begins(self._clock.t)
        self._tally.begins(person)
        self._clock.at(over, self._unless_changed(person, self._done))

    def _done(self, person: Person) -> None:
        self._tally.used(person, person.stops(self._clock.t))
        due, leaves = person.goes_on(self._clock.t)
        act = self._leave if leaves else self._want
        self._clock.at(due, self._unless_changed(person, act))
        lease = self._site.lease_of(person)
        if lease is not None and lease.state is LeaseState.ACTIVE:
            self._site.rests(person, lease, due)

    def _leave(self, person: Person) -> None:
        person.leaves(self._clock.t)
        self._site.closed(person)
