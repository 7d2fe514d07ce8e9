"""What a round costs is in step with what changed: views are made anew for those leases alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gpulease.policy.explanation.forecast import outlook
from gpulease.policy.model import Snapshot
from gpulease.service.hubs.auth import Asker
from gpulease.service.leases import views as module
from gpulease.service.leases.events import Events, Reader
from gpulease.service.leases.views import Views
from tests.policy.build import active, busy, cards, policy, request, seen, snapshot


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
        observer = SimpleNamespace(busy_share=lambda _: 0.5, memory_used=lambda _: self.memory)
        self.loop: Any = SimpleNamespace(
            observer=observer,
            decider=SimpleNamespace(within_reach={}),
            outlook=outlook(self.view),
        )
        self.views = Views(self.loop, None)
        self.events = Events(lambda _, view: view, lambda: 0.0)
        self.sink = Sink()
        self.events.join(Reader(Asker("root", admin=True), self.sink), None)

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
    """The same world a second later: everything that a look makes anew is new."""
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
        fresh = Views(rounds.loop, rounds.views._server_started)
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
