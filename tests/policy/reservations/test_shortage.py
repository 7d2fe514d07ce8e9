"""What an instructor is told when a lab has too few seats, and what is offered."""

from gpulease.policy.reservations.feasibility import Pool
from gpulease.policy.reservations.reports import shortage
from tests.policy.build import NOW, policy
from tests.policy.reservations.build import reservation, window

POLICY = policy()
HOUR = 3600.0


def lacks(seats, people, *others, firm=3, **changed):
    pools = {"cards": Pool(firm), "slices": Pool(8)}
    return shortage(
        window(**changed), seats, people, [reservation(), *others],
        policy=POLICY, pools=pools, now=NOW,
    )  # fmt: skip


def test_a_lab_with_a_seat_for_everybody_lacks_nothing():
    assert lacks(3, 3) is None
    assert lacks(3, 0) is None, "nobody counted its people"


def test_seats_that_were_lost_are_said_with_a_smaller_class_and_a_second_session():
    found = lacks(2, 9, firm=2)
    assert found.sentence == (
        "lab of cs101 on Mon 02 Mar 2026 15:00 has 2 of 3 x t4: GPUs are out of service."
    )
    assert found.next_step == (
        "The class slice has room then. Or split it: 2 of the seats then and 2 from 17:00."
    )


def test_more_people_than_seats_are_said_and_half_of_them_come_later():
    found = lacks(3, 6)
    assert found.sentence == "lab of cs101 has 3 seats for 6 people."
    assert found.next_step == (
        "The class slice has room then. Or split it: 3 of the seats then and 3 from 17:00."
    )
    assert found.to_json()["people"] == 6


def test_a_split_is_offered_only_where_the_second_session_is_free():
    after = reservation("b", 3 * HOUR, 2 * HOUR, seats=3, group="bio")
    assert lacks(3, 6, after).offer.split is None
    assert lacks(3, 7).offer.split is None, "half of seven is more than three"


def test_where_nothing_helps_it_says_who_has_a_seat():
    assert lacks(3, 90).next_step == "Seats go to those who come first."


def test_where_more_seats_fit_at_the_same_time_nobody_is_sent_to_another():
    assert lacks(3, 6, firm=8).next_step == "6 seats fit at your time."
    # Not all of them, but more than were reserved.
    said = lacks(3, 6, firm=4).next_step
    assert said.startswith("4 seats fit at your time.")
    assert "Or split it" in said
