"""What a plan does for the windows of reservations: who is let in, who must go, when and why.

A class of three cards, the lab of cs101 reserves all of them for an hour.
"""

from dataclasses import replace

import pytest

from gpulease.policy.calendar.reservation import GroupTerms, ReservationTerms
from gpulease.policy.explanation.decision import decision
from gpulease.policy.lifecycle import apply, keep_refusal
from gpulease.policy.model import (
    Alert,
    Clear,
    Drain,
    EndReason,
    LeaseState,
    Start,
    Verdict,
    Wait,
    Warn,
)
from gpulease.policy.planner import plan
from gpulease.policy.reservations.departures import about, departures, first_gpus
from gpulease.policy.reservations.seats import seating, time_outs_at
from gpulease.texts import instant
from tests.policy.build import (
    OUTS,
    active,
    at,
    busy,
    cards,
    idle,
    request,
    seen,
    snapshot,
    warned,
)
from tests.policy.reservations.build import window

HOUR = 3600.0
MEMBER = {"groups": ("cs101",)}


def view(leases, windows, evidence=None, count=3, **changed):
    """Everybody who holds a device is busy unless it is said otherwise."""
    held = [x for x in leases if x.devices]
    known = {x.id: busy() for x in held} | (evidence or {})
    observed = [seen(x) for x in held]
    return snapshot(leases, cards(count), known, observed, windows=tuple(windows), **changed)


def steps(found):
    return {a.lease_id: a for a in plan(found) if not isinstance(a, Alert)}


def started(found):
    return sorted(a.lease_id for a in plan(found) if isinstance(a, Start))


def waits(found):
    return {a.lease_id: a.reason for a in plan(found) if isinstance(a, Wait)}


# Who is let in.


def test_before_anything_is_near_others_are_served():
    assert started(view([request(1)], [window(start=HOUR)])) == ["r1"]


def test_who_starts_on_a_seat_gets_the_image_of_the_course_and_nobody_else_does():
    found = view([request(1), request(2, **MEMBER)], [window(start=-60, seats=1)])
    own = ReservationTerms(groups=(("cs101", GroupTerms(image="cs101:1")),))
    found = replace(found, policy=replace(found.policy, reservations=own))
    images = {a.lease_id: a.image for a in plan(found) if isinstance(a, Start)}
    assert images == {"r1": "", "r2": "cs101:1"}
    served = apply(request(2, **MEMBER), steps(found)["r2"], found.now, OUTS)
    assert served.image == "cs101:1"


def test_a_lab_that_ends_early_keeps_nothing_and_its_people_stay_until_others_need_their_gpus():
    stays = active(1, **MEMBER)
    lab = window(start=-60)
    over = replace(lab, end=at(0))
    assert waits(view([stays, request(2)], [lab])) == {"r2": "reserved"}
    early = view([stays, request(2)], [over])
    assert started(early) == ["r2"]
    assert "r1" not in steps(early), "nobody needs it"


@pytest.mark.parametrize(("left", "let_in"), [(431, True), (429, False), (10, False), (-1, False)])
def test_a_borrower_that_could_not_be_gone_in_time_is_not_let_in(left, let_in):
    # Minimum runtime 300, warning 60, interrupt 10 and drain 60 seconds before the lead begins.
    found = view([request(1)], [window(start=120 + left)])
    assert started(found) == (["r1"] if let_in else [])
    if not let_in:
        assert waits(found) == {"r1": "reserved"}


def test_what_the_window_does_not_need_is_free_for_all():
    found = view([request(1), request(2)], [window(start=60, seats=2)])
    assert started(found) == ["r1"]
    assert waits(found) == {"r2": "reserved"}


def test_members_come_in_during_the_lead_and_others_do_not():
    found = view([request(1), request(2, **MEMBER)], [window(start=60)])
    assert started(found) == ["r2"]


def test_a_member_waits_for_the_window_and_is_told_so():
    found = view([request(1, **MEMBER), active(2, "GPU-0"), active(3, "GPU-1"), active(4, "GPU-2")],
                 [window(start=300)])  # fmt: skip
    begins, ends = instant(at(300)), instant(at(300 + 2 * HOUR))
    said = f"“lab” is from {begins} to {ends}, with 3 seats; first GPUs at {begins}."
    assert said in about(found, found.leases[0])


def test_in_an_open_window_seats_go_to_members_first_come():
    asks = [request(1), *(request(n, **MEMBER) for n in (2, 3, 4, 5))]
    found = view(asks, [window(start=-60)])
    assert started(found) == ["r2", "r3", "r4"]
    assert waits(found) == {"r1": "reserved", "r5": "seats_taken"}


def test_one_person_has_as_many_seats_as_were_given_to_each():
    asks = [request(n, user="ann", server=f"s{n}", **MEMBER) for n in (1, 2)]
    assert started(view(asks, [window(start=-60)])) == ["r1"]
    assert started(view(asks, [window(start=-60, seats_per_person=2)])) == ["r1", "r2"]


def test_named_seats_are_for_those_named():
    asks = [request(1, user="ann", **MEMBER), request(2, user="bob")]
    assert started(view(asks, [window(start=-60, named=("bob",))])) == ["r2"]


def test_unclaimed_seats_are_lent_after_the_grace_and_latecomers_come_next():
    before = view([request(1)], [window(start=-599)])
    after = view([request(1)], [window(start=-601)])
    assert (started(before), started(after)) == ([], ["r1"])
    both = view([request(1), request(2, **MEMBER)], [window(start=-601)], count=1)
    assert started(both) == ["r2"], "though the other asked before"


def test_in_an_exam_nothing_is_lent():
    assert started(view([request(1)], [window(start=-1800, exam=True)])) == []


def test_a_device_that_was_taken_back_for_somebody_goes_to_the_window_first():
    gone = active(8, "GPU-0", state=LeaseState.ENDED, nominated_for="r1", ended=at(-5))
    found = view([request(1), request(2, **MEMBER), gone], [window(start=-60)], count=1)
    assert started(found) == ["r2"]


def test_a_full_class_is_not_served_by_a_fall_back_that_is_reserved():
    document = snapshot([]).policy
    t4, small = document.classes
    document = replace(document, classes=(replace(small, fallback=("t4",)), t4))
    asks = [request(1, gpu_class="slice")]
    found = view(asks, [window(start=60)], policy=document)
    assert started(found) == []
    assert started(view(asks, [], policy=document)) == ["r1"]


# Who must go, and when.


def borrowers(*numbers, **changed):
    return [active(n, f"GPU-{n}", **changed) for n in numbers]


def test_borrowers_are_warned_so_that_they_leave_when_the_lead_begins():
    held = borrowers(0, 1, 2)
    quiet = view(held, [window(start=181)])
    assert steps(quiet) == {}
    due = steps(view(held, [window(start=180)]))
    assert set(due) == {"r0", "r1", "r2"}
    for action in due.values():
        assert isinstance(action, Warn)
        assert (action.reason, action.end_reason) == ("reserved", EndReason.PREEMPTED)
        assert action.until == at(60)  # 120 seconds of lead before the start


def test_only_as_many_leave_as_the_window_needs_most_idle_first_then_youngest():
    held = [
        active(0, "GPU-0", active_since=at(-3000)),
        active(1, "GPU-1", active_since=at(-600)),
        active(2, "GPU-2", active_since=at(-2000)),
    ]
    assert set(steps(view(held, [window(start=150, seats=1)]))) == {"r1"}
    dozing = view(held, [window(start=150, seats=1)], {"r0": idle(30)})
    assert set(steps(dozing)) == {"r0"}
    assert set(steps(view(held, [window(start=150, seats=1)], count=4))) == set()


def test_a_borrower_keeps_its_minimum_runtime_when_a_window_is_booked_at_short_notice():
    (lease,) = held = borrowers(0, active_since=at(-100))
    found = view(held, [window(start=60)], count=1)
    assert departures(found)["r0"].until == at(200)
    assert steps(found) == {}
    begins, goes = instant(at(60)), instant(at(200))
    said = f"It is reserved for cs101 from {begins}. You must give it back by {goes}."
    assert said in about(found, lease)


def test_one_who_is_not_of_the_group_reads_long_before_when_and_why_to_leave():
    held = borrowers(0, 1, 2)
    found = view(held, [window(start=1800)])
    begins, goes = instant(at(1800)), instant(at(1680))
    said = f"It is reserved for cs101 from {begins}. You must give it back by {goes}."
    assert about(found, held[0]) == said
    assert about(view(held, [window(start=2 * HOUR)]), held[0]) == ""


def test_a_member_who_works_already_stays_and_has_a_seat():
    held = [active(0, "GPU-0", **MEMBER), *borrowers(1, 2)]
    found = view(held, [window(start=100)])
    assert set(steps(found)) == {"r1", "r2"}
    assert about(found, held[0]) == f"You have a seat in “lab” until {instant(at(100 + 2 * HOUR))}."


def after(found):
    leases = {x.id: x for x in found.leases}
    for action in plan(found):
        if not isinstance(action, Alert):
            leases[action.lease_id] = apply(leases[action.lease_id], action, found.now, OUTS)
    return list(leases.values())


def test_who_was_warned_stays_when_the_reservation_is_cancelled():
    held = after(view(borrowers(0, 1, 2), [window(start=150)]))
    assert {x.state for x in held} == {LeaseState.WARNED}
    lifted = steps(view(held, []))
    assert {type(a) for a in lifted.values()} == {Clear}
    assert {a.reason for a in lifted.values()} == {"hold_lifted"}
    assert steps(view(held, [window(start=150)])) == {}, "and else the warning stands"


def test_a_warning_for_a_window_ends_in_a_drain_that_parks():
    held = after(view(borrowers(0), [window(start=150)], count=1))
    found = view(held, [window(start=150 - 61)], count=1, now=at(61))
    (action,) = plan(found)
    assert isinstance(action, Drain)
    assert (action.reason, action.park, action.end_reason) == (
        "reserved",
        True,
        EndReason.PREEMPTED,
    )


def test_back_to_back_the_first_lab_is_warned_before_its_end_and_never_displaced_by_the_lead():
    first = window("first", -HOUR, HOUR + 100, group="bio")
    second = window("second", 100, HOUR)
    held = [active(n, f"GPU-{n}", groups=("bio",)) for n in range(3)]
    assert steps(view(held, [first, second])) == {}
    found = view(held, [first, second], now=at(50))
    due = steps(found)
    assert {a.reason for a in due.values()} == {"window_over"}
    assert {a.end_reason for a in due.values()} == {EndReason.WINDOW_OVER}
    assert {a.until for a in due.values()} == {at(110)}, "the full warning"
    assert first_gpus(found, second) == at(160)
    waiting = request(9, **MEMBER)
    both = view([*held, waiting], [first, second])
    assert f"first GPUs at {instant(at(160))}" in about(both, waiting)


def test_a_group_whose_next_lab_follows_keeps_its_gpus():
    first, second = window("first", -HOUR, HOUR + 30), window("second", 30, HOUR)
    held = [active(n, f"GPU-{n}", **MEMBER) for n in range(3)]
    assert steps(view(held, [first, second])) == {}


def test_after_an_ordinary_lab_those_stay_whose_gpu_nobody_needs():
    lab = window(start=-HOUR, length=HOUR + 30)
    held = [active(n, f"GPU-{n}", **MEMBER) for n in range(3)]
    assert steps(view(held, [lab])) == {}
    wanted = steps(view([*held, request(7), request(8)], [lab]))
    assert [a.reason for a in wanted.values() if isinstance(a, Warn)] == ["window_over"] * 2


def test_after_an_exam_everybody_leaves_but_who_has_extra_time():
    exam = window(start=-HOUR, length=HOUR + 30, exam=True, extra_time=(("user1", 600.0),))
    held = [active(n, f"GPU-{n}", **MEMBER) for n in range(3)]
    due = steps(view(held, [exam]))
    assert set(due) == {"r0", "r2"}
    later = view([held[1]], [exam], now=at(30 + 550))
    assert steps(later)["r1"].until == at(640)


@pytest.mark.parametrize("extra", [(), (("user1", 600.0),)])
def test_who_was_warned_of_an_exams_end_leaves_when_it_comes(extra):
    exam = window(start=-HOUR, length=HOUR + 30, exam=True, extra_time=extra)
    held = active(
        0, "GPU-0", **MEMBER, state=LeaseState.WARNED, reason="window_over", warned_until=at(30),
        end_reason_wanted=EndReason.WINDOW_OVER,
    )  # fmt: skip
    assert "r0" not in steps(view([held], [exam], now=at(29))), "it stays warned"
    assert isinstance(steps(view([held], [exam], now=at(30)))["r0"], Drain)
    assert isinstance(steps(view([held], [], now=at(31)))["r0"], Drain), (
        "the window is gone by then"
    )
    assert isinstance(steps(view([held], [], now=at(20)))["r0"], Clear), "it was cancelled"


def test_who_was_warned_of_an_exams_end_leaves_whoever_else_has_more_time():
    """Those who have none would have to go for them in the end: that does not keep them."""
    exam = window(start=-HOUR, length=HOUR + 30, seats=2, exam=True, extra_time=(("user1", 600.0),))
    over = active(
        0, "GPU-0", **MEMBER, state=LeaseState.WARNED, reason="window_over", warned_until=at(30),
        end_reason_wanted=EndReason.WINDOW_OVER,
    )  # fmt: skip
    leases = [over, active(1, "GPU-1", **MEMBER), request(9, count=2)]
    assert isinstance(steps(view(leases, [exam], now=at(30)))["r0"], Drain)


@pytest.mark.parametrize("extra", [(), (("user1", 600.0),)])
def test_a_warning_that_began_a_moment_late_is_not_taken_back_when_the_exam_ends(extra):
    """Rounds are a second apart, so a whole warning ends up to so much after the window."""
    exam = window(start=-HOUR, length=HOUR + 30, seats=2, exam=True, extra_time=extra)
    over = active(
        0, "GPU-0", **MEMBER, state=LeaseState.WARNED, reason="window_over", warned_until=at(31),
        end_reason_wanted=EndReason.WINDOW_OVER,
    )  # fmt: skip
    leases = [over, active(1, "GPU-1", **MEMBER), request(9, count=2)]
    for windows in ([exam], []):
        assert not isinstance(steps(view(leases, windows, now=at(30.5))).get("r0"), Clear)
        assert isinstance(steps(view(leases, windows, now=at(31)))["r0"], Drain)
    longer = window(start=-HOUR, length=HOUR + 900, seats=2, exam=True)
    assert isinstance(steps(view(leases, [longer], now=at(28)))["r0"], Clear), "it was extended"


def test_a_latecomer_gets_a_lent_seat_back():
    lab = window(start=-1800)
    held = borrowers(0, 1, 2)
    assert steps(view(held, [lab])) == {}
    due = steps(view([*held, request(7, **MEMBER)], [lab]))
    assert len([a for a in due.values() if isinstance(a, Warn)]) == 1


@pytest.mark.parametrize(
    ("start", "seats", "count", "said"),
    [(-1800, 3, 3, True), (-1800, 1, 3, True), (-1800, 1, 4, False), (-60, 1, 4, False)],
)
def test_who_works_on_a_lent_seat_reads_who_is_served_before_them(start, seats, count, said):
    held = borrowers(0, 1, 2)
    found = view(held, [window(start=start, seats=seats)], count=count)
    words = (
        f"Unclaimed seats of “lab” are lent until {instant(at(start + 2 * HOUR))}: a late member "
        "of cs101 has priority and may need this GPU."
    )
    assert {about(found, each) for each in held} == ({words} if said else {""})


def test_a_member_on_a_seat_reads_of_the_seat_while_others_are_lent():
    mine = active(0, "GPU-0", **MEMBER)
    held = [mine, *borrowers(1, 2)]
    found = view(held, [window(start=-1800)])
    assert about(found, mine) == f"You have a seat in “lab” until {instant(at(2 * HOUR - 1800))}."
    assert "has priority" in about(found, held[1])


# Idleness in a window.


def test_an_idle_seat_goes_back_to_the_window_and_not_to_the_pool():
    lab = window(start=-60)
    held = [active(n, f"GPU-{n}", **MEMBER) for n in range(3)]
    dozing = {"r0": idle(200)}
    others = view([*held, request(7)], [lab], dozing)
    assert not any(isinstance(a, Warn) for a in plan(others))
    mine = view([*held, request(7, **MEMBER)], [lab], dozing)
    assert isinstance(steps(mine)["r0"], Warn), "a member who waits is pressure"


def test_a_window_has_its_own_idle_time_out():
    held = [active(0, "GPU-0", **MEMBER)]
    for own, seconds, leaves in [(600.0, 400, False), (600.0, 601, True), (90.0, 100, True)]:
        found = view(held, [window(start=-60, idle=own)], {"r0": idle(seconds)})
        assert bool(steps(found)) == leaves


def test_in_an_exam_nobody_is_reclaimed_and_nothing_is_kept():
    held = [active(0, "GPU-0", **MEMBER)]
    found = view(held, [window(start=-60, exam=True)], {"r0": idle(5000)})
    assert steps(found) == {}
    refusal = keep_refusal(held[0], time_outs_at(found, held[0]))
    assert refusal is not None
    assert refusal.sentence == "Keep is not needed: this GPU is not released for being idle."


def test_who_was_to_claim_a_gpu_and_sits_in_an_exam_is_not_said_to_use_it():
    held = [warned(0, reason="unclaimed", claimed=None, **MEMBER)]
    found = view(held, [window(start=-60, exam=True)], {"r0": idle(5000, before=Verdict.IDLE)})
    assert steps(found) == {"r0": Clear("r0", "policy_changed")}


# Fewer devices than reserved.


def test_lost_devices_shorten_windows_that_overlap_pro_rata():
    two = [window("a", -60, seats=4), window("b", -60, seats=2, group="bio")]
    found = view([], two, count=3)
    assert dict(seating(found).seats) == {two[0].key: 2, two[1].key: 1}


def test_when_capacity_is_not_known_nobody_leaves_for_a_window():
    held = borrowers(0, 1, 2)
    assert steps(view(held, [window(start=100)], capacity_known=False)) == {}


def test_an_admin_reads_for_which_window_a_lease_goes_before_that_holds_anything():
    lab = window(start=400)
    found = view([active(n) for n in range(3)], [lab], now=at(0))
    assert found.now < lab.hold_from
    first = found.leases[0]
    told = decision(found, first, next((x for x in plan(found) if x.lease_id == first.id), None))
    leaves = departures(found)[first.id]
    said = f"It has to go by {instant(leaves.until)}: lab of cs101 needs GPUs from"
    assert [words for words in told.words if words.startswith(said)]
    assert told.numbers["leaves_for"] == lab.key
    alone = decision(view([active(0)], []), first, None)
    assert "leaves_for" not in alone.numbers
