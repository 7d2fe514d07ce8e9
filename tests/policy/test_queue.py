"""Who waits: one more request is as if all had been counted anew."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpulease.policy import queue
from gpulease.policy.model import Lease, Snapshot
from tests.policy.build import active, at, request, snapshot

PEOPLE = st.sampled_from(["ann", "bob"])
MADE = st.builds(
    lambda make, user, server: (make, {"user": user, "server": server}),
    st.sampled_from([active, request]),
    PEOPLE,
    st.sampled_from(["", "lab"]),
)


@given(st.lists(MADE, max_size=8), st.lists(st.tuples(PEOPLE, st.integers(-5, 5)), max_size=4))
def test_a_snapshot_with_a_new_request_is_as_one_made_of_all(there, asked) -> None:
    leases = [make(number, **changed) for number, (make, changed) in enumerate(there)]
    known = snapshot(leases)
    for number, (user, late) in enumerate(asked, len(leases)):
        new = replace(request(number, user=user), ticket=(at(late), number))
        known = queue.with_new(known, new)
        assert told(known) == told(replace(known))


def told(known: Snapshot) -> tuple[tuple[Lease, ...], dict, dict]:
    theirs = {user: tuple(there) for user, there in queue.by_person(known).items()}
    return queue.waiting(known), theirs, dict(queue.waiting_of(known))
