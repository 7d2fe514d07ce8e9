"""Views of leases and classes, what a round of them costs, and how long things have stood."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpulease.policy.catalog import Elastic
from gpulease.policy.explanation.forecast import outlook
from gpulease.policy.model import Device, GPUClass, LeaseState, Pool, Snapshot
from gpulease.service.hubs.auth import Asker
from gpulease.service.leases import views as module
from gpulease.service.leases.events import EventReader, Events
from gpulease.service.leases.view_parts import on_offer
from gpulease.service.leases.views import Views, device_uses, overdue, silences
from gpulease.service.metrics import Metrics
from tests.policy.build import (
    NOW,
    active,
    at,
    busy,
    cards,
    draining,
    policy,
    request,
    seen,
    snapshot,
    starting,
    unknown,
    warned,
)


class Sink:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def send(self, message: dict[str, Any]) -> None:
        self.told.append(message)

    def close(self) -> None:
        pass


class Round:
    """The end of a round: views and events of all leases, with what was done for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        leases = [active(n) for n in range(number)]
        self.view = snapshot(
            leases,
            cards(number + 1, node="n"),
            {each.id: busy() for each in leases},
            [seen(each, in_use=True) for each in leases],
            policy=policy(),
        )
        self.explained: list[str] = []
        whole = module.explain

        def explain(lease: Any, *args: Any, **more: Any) -> Any:
            self.explained.append(lease.id)
            return whole(lease, *args, **more)

        monkeypatch.setattr(module, "explain", explain)
        self.memory = 2 << 30
        observer = SimpleNamespace(
            minutes=SimpleNamespace(busy_share=lambda _: 0.5),
            watch=SimpleNamespace(memory_used=lambda _: self.memory),
        )
        self.loop: Any = SimpleNamespace(
            observer=observer,
            decider=SimpleNamespace(within_reach={}),
            outlook=outlook(self.view),
        )
        self.views = Views(self.loop, None)
        self.events = Events(lambda _, view: view, lambda: 0.0)
        self.sink = Sink()
        self.events.join(EventReader(Asker("root", admin=True), self.sink), None)

    def end(self, view: Snapshot) -> int:
        """Publish, and return for how many leases a view was made."""
        self.explained.clear()
        self.sink.told.clear()
        self.view = view
        leases = list(view.leases)
        for lease, made in zip(leases, self.views.leases(leases, view), strict=True):
            self.events.publish(lease, made)
        return len(self.explained)


def later(view: Snapshot, **changed: Any) -> Snapshot:
    """The same world a second later: everything that a look rebuilds is new."""
    devices = tuple(replace(each) for each in view.devices)
    evidence = {key: replace(each) for key, each in view.evidence.items()}
    now = view.now + timedelta(seconds=1)
    return replace(view, **{"now": now, "devices": devices, "evidence": evidence, **changed})


@pytest.mark.parametrize("number", [50, 400])
def test_a_round_in_which_one_lease_changed_makes_one_view(monkeypatch, number) -> None:
    rounds = Round(monkeypatch, number)
    assert rounds.end(rounds.view) == number
    first, *others = rounds.view.leases
    moved = replace(first, keeps=1, version=2)
    assert rounds.end(later(rounds.view, leases=(moved, *others))) == 1
    assert [each["lease"]["id"] for each in rounds.sink.told] == [moved.id]
    assert rounds.end(later(rounds.view)) == 0
    assert rounds.sink.told == []


def test_what_a_view_says_is_what_is_made_from_nothing(monkeypatch) -> None:
    """Whatever changes between two rounds: a lease, its device, the policy, its use, the queue."""
    rounds = Round(monkeypatch, 3)
    view = rounds.view
    worlds = [
        view,
        later(view, evidence={"r0": replace(busy(), utilisation=0.2)}),
        later(view, devices=tuple(replace(each, name="A100") for each in view.devices)),
        later(view, devices=view.devices[1:]),
        later(view, policy=replace(policy(), leases_per_user=9)),
        later(view, leases=(*view.leases, request(9))),
        later(view, leases=(*view.leases, request(8), request(9))),
        later(view, leases=(replace(view.leases[0], reason="kept"), *view.leases[1:])),
        later(view, observed={}),
        view,
    ]
    for world in worlds:
        rounds.loop.outlook = outlook(world)
        fresh = Views(rounds.loop, rounds.views.server_started)
        leases = list(world.leases)
        assert rounds.views.leases(leases, world) == fresh.leases(leases, replace(world))


def test_views_of_leases_that_are_forgotten_are_forgotten(monkeypatch) -> None:
    rounds = Round(monkeypatch, 5)
    rounds.end(rounds.view)
    rounds.views.forget({"r1"})
    assert list(rounds.views._made) == ["r1"]


def test_memory_that_grows_is_a_figure_of_the_same_view(monkeypatch) -> None:
    rounds = Round(monkeypatch, 1)
    rounds.end(rounds.view)
    before = rounds.views.leases(rounds.view.leases, rounds.view)[0]
    rounds.memory = 3 << 30
    assert rounds.end(later(rounds.view)) == 0, "a new view was made"
    after = rounds.views.leases(rounds.view.leases, rounds.view)[0]
    assert (before["memory_used"], after["memory_used"]) == (2 << 30, 3 << 30)


def shown(*leases, devices=(), elastic=None, grows=True, classes=("small", "large")):
    known = policy(
        pools=(Pool("cards", elastic=elastic),),
        classes=tuple(GPUClass(name, "cards", name.title()) for name in classes),
        default_class=classes[0],
    )
    found = on_offer(
        Snapshot(
            now=NOW,
            policy=known,
            devices=devices,
            leases=leases,
            evidence={},
            observed={},
            grows=grows,
        ),
        {},
    )
    return {each["name"]: each for each in found}


def test_a_device_is_free_for_the_classes_that_it_can_serve():
    found = shown(
        devices=(
            Device("GPU-0", "cards", serves=("small",)),
            Device("GPU-1", "cards", serves=None),
            Device("GPU-2", "cards", serves=("small",), occupied_by="foreign"),
        )
    )
    assert (found["small"]["free"], found["small"]["total"]) == (2, 3)
    assert (found["large"]["free"], found["large"]["total"]) == (1, 1)


def test_a_pool_that_grows_says_what_adding_takes_as_long_as_it_can():
    elastic = Elastic(max=2, provision_time=360.0, spot=True)
    assert "provision" not in shown()["small"]
    assert "provision" not in shown(elastic=elastic, grows=False)["small"]
    found = shown(elastic=elastic)["small"]
    assert (found["total"], found["provision"], found["spot"]) == (0, 360.0, True)
    full = tuple(Device(f"GPU-{n}", "cards", occupied_by="foreign") for n in range(2))
    assert shown(elastic=elastic, devices=full)["small"]["provision"] is None


def test_who_waits_is_counted_with_the_class_asked_for():
    lease = replace(request(1), gpu_class="large")
    assert shown(lease)["large"]["queued"] == 1
    assert shown(starting(1))["small"]["queued"] == 0


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
