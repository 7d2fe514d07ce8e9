"""How long things have stood that should not, and what the metrics show of it."""

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from gpulease.policy.model import Device, LeaseState
from gpulease.service.leases.standing import device_uses, overdue, silences
from gpulease.service.metrics import Metrics
from tests.policy.build import (
    active,
    at,
    busy,
    cards,
    draining,
    request,
    seen,
    snapshot,
    starting,
    unknown,
    warned,
)


def values(metrics, name):
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.name == name
    }


def test_the_most_silent_lease_of_a_class_counts():
    leases = [active(0), active(1), active(2, gpu_class="slice"), starting(3), draining(4)]
    evidence = {"r0": unknown(40), "r1": unknown(400), "r2": busy(), "r3": unknown(900)}
    assert silences(snapshot(leases, 5, evidence)) == {"t4": 400, "slice": 0}


def test_a_lease_that_was_never_heard_of_is_silent_since_it_is_active():
    assert silences(snapshot([active(0)]))["t4"] == 1800


def test_a_reclaim_within_its_bound_is_not_overdue():
    found = overdue(snapshot([warned(0, 30), draining(1, 30), active(2), request(3)], 3))
    assert max(found.values()) <= 0


def test_a_drain_that_takes_too_long_shows_by_how_much():
    found = overdue(snapshot([draining(0, -90), draining(1, -20), warned(2, -5)], 3))
    assert found == {"t4": 90, "slice": 0}


def test_an_ended_lease_that_is_still_shown_is_overdue_and_one_that_is_gone_is_not():
    over = replace(active(0), state=LeaseState.ENDED, ended=at(-70))
    assert overdue(snapshot([over], observed=[seen(over)]))["t4"] == 70
    assert overdue(snapshot([over]))["t4"] == 0


def test_devices_by_use():
    devices = (
        *cards(2),
        Device("sick", "cards", healthy=False),
        Device("away", "cards", lost=True, healthy=False),
        Device("beside", "cards", serves=()),  # the next pod could land on a failing one
        Device("held", "cards", serves=(), occupied_by="r1"),
    )
    assert list(device_uses(snapshot([], devices), {"GPU-0"})) == [
        ("cards", use) for use in ("free", "used", "quarantined", "lost", "quarantined", "used")
    ]


def test_the_gauges_follow_and_forget():
    metrics = Metrics()
    metrics.show_standing({"t4": 400}, {"t4": 90}, ["adopted", "adopted", "mass_idle"])
    assert values(metrics, "gpulease_longest_silence_seconds") == {("t4",): 400}
    assert values(metrics, "gpulease_longest_overdue_seconds") == {("t4",): 90}
    assert values(metrics, "gpulease_alerts") == {("adopted",): 2, ("mass_idle",): 1}
    metrics.show_standing({"t4": 0}, {"t4": 0}, [])
    assert values(metrics, "gpulease_alerts") == {}
    assert values(metrics, "gpulease_longest_overdue_seconds") == {("t4",): 0}


def test_what_is_overdue_is_never_negative():
    metrics = Metrics()
    metrics.show_standing({}, {"t4": -30}, [])
    assert values(metrics, "gpulease_longest_overdue_seconds") == {("t4",): 0}


def test_taken_capacity_counts_from_nothing_on_so_that_the_first_is_an_increase():
    metrics = Metrics()
    metrics.show_devices([("cards", "free")])
    assert values(metrics, "gpulease_capacity_taken_total") == {("cards",): 0}
    metrics.taken("cards")
    assert values(metrics, "gpulease_capacity_taken_total") == {("cards",): 1}
