"""Reservations in the store: as they were, also those of another version."""

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.occurrences import Changed
from gpulease.policy.calendar.reservation import Reservation
from gpulease.store import reservations as stored
from gpulease.store.models import ReservationRow
from tests.policy.build import NOW
from tests.policy.reservations.build import reservation, wall

WHOLE = reservation(
    weeks=2,
    named=("ann", "bob"),
    managers=("ta",),
    extra_time=(("ann", 600.0),),
    contact=("lab@example.org",),
    idle=90.0,
    exam=True,
    closed=((wall("2026-12-24T14:00"), "Christmas"),),
)
MOVED = Changed(wall("2026-03-09T14:00"), wall("2026-03-10T14:00"), wall("2026-03-10T16:00"))
#: What a version of 2026 kept, with a member that is none any more and without younger ones.
RECORD = {
    "id": "R", "name": "lab", "group": "cs101", "gpu_class": "t4", "seats": 3, "owner": "prof",
    "created": "2026-03-02T10:00:00+00:00", "title": "", "version": 2, "colour": "red",
    "calendar": {
        "start": "2026-03-02T14:00:00", "end": "2026-03-02T16:00:00", "zone": "UTC",
        "repeat": "FREQ=WEEKLY;COUNT=2", "also": [], "without": ["2026-03-16T14:00:00"],
        "changed": [
            ["2026-03-09T14:00:00", "2026-03-10T14:00:00", "2026-03-10T16:00:00"],
            ["2026-03-23T14:00:00", None, None],
        ],
    },
    "occurrences": [
        ["2026-03-02T14:00:00", "2026-03-02T14:00:00+00:00", "2026-03-02T16:00:00+00:00"],
    ],
    "extra_time": [["ann", 600.0]],
}  # fmt: skip
MADE = stored.ReservationEvent(WHOLE.id, NOW, "ann", "made", "")


def test_a_reservation_is_read_as_it_was_written(store):
    store.write(stored.save, None, WHOLE, MADE)
    assert store.read(stored.read) == [WHOLE]
    with pytest.raises(GPULeaseError) as caught:
        store.write(stored.save, None, WHOLE, MADE)
    assert (caught.value.reason, caught.value.status) == ("reservation_changed", 409)


def test_a_reservation_that_another_version_wrote_is_read(store):
    row = ReservationRow(
        id="R", version=2, group_name="cs101", name="lab", cancelled=False, created=NOW,
        record=RECORD,
    )  # fmt: skip
    store.write(lambda session: session.add(row))
    (found,) = store.read(stored.read)
    assert isinstance(found, Reservation)
    assert found.calendar.changed == (MOVED, Changed(wall("2026-03-23T14:00")))
    assert found.calendar.without == (wall("2026-03-16T14:00"),)
    assert (found.created.utcoffset(), found.named, found.closed) == (NOW.utcoffset(), (), ())
    assert (found.extra_time, found.occurrences[0].original) == (
        (("ann", 600.0),), wall("2026-03-02T14:00"),
    )  # fmt: skip
