"""What is kept free for a reservation is free for nobody else, and nobody is told otherwise."""

from dataclasses import replace

import pytest

from gpulease.policy.explanation.forecast import expected_start, next_starts
from gpulease.service.leases.view_parts import on_offer
from tests.policy.build import at, cards, request, snapshot
from tests.policy.reservations.build import TERMS, window


@pytest.mark.parametrize(
    ("exam", "seats", "free", "starts"),
    [
        (False, 3, 0, at(TERMS.grace - 60)),  # until its seats are lent
        (True, 3, 0, at(7140)),  # until its end
        (True, 2, 1, at(0)),
    ],
)
def test_what_is_kept_for_seats_is_not_free_for_others(exam, seats, free, starts):
    held = window(start=-60.0, exam=exam, seats=seats)
    stranger = replace(request(1, reason="reserved"), server_ready=True)
    seen = snapshot([stranger], cards(3), windows=(held,))
    (shown,) = [each for each in on_offer(seen, {}) if each["name"] == "t4"]
    assert (shown["free"], shown["reserved"], shown["total"]) == (free, seats, 3)
    assert expected_start(seen, stranger.id) == starts
    alone = snapshot([], cards(3), windows=(held,))
    assert next_starts(alone)["cards"] == starts
    member = replace(stranger, id="r2", groups=("cs101",))
    both = snapshot([stranger, member], cards(3), windows=(held,))
    assert expected_start(both, member.id) == at(0), "a seat is ready for whom it is kept"
