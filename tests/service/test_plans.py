"""Plans are kept with what they were made from, and each decision can be told afterwards."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from gpulease.errors import GPULeaseError
from gpulease.policy import document
from gpulease.policy.explanation.decision import decisions
from gpulease.policy.model import Action, Alert, Snapshot, Wait, Warn
from gpulease.service.control_loop.deciding import Plans, last_spread
from gpulease.store import Ages, retention
from gpulease.store.engine import make_engine
from gpulease.store.history import unpack
from tests.policy.build import NOW, cards, policy
from tests.policy.world import Habit, World
from tests.service import kit
from tests.service.kit import Site, active_lease

DAY = timedelta(days=1)


class Seen(World):
    """A world that remembers what was planned from."""

    seen: Snapshot

    def snapshot(self) -> Snapshot:
        self.seen = super().snapshot()
        return self.seen


def history(ticks: int = 120) -> list[tuple[Snapshot, list[Action], bytes]]:
    """Let a small world live; return what was planned from what, and what was kept of it."""
    world, kept, packer = Seen(policy(), list(cards(3))), [], Plans()
    for tick in range(ticks):
        if tick % 6 == 0:
            world.ask(
                f"user{tick % 5}", Habit(works=20.0 + tick, drain="blocked" if tick % 4 else "done")
            )
        actions = world.step()
        found = packer.packed(world.seen, actions)
        assert (found is None) == all(isinstance(each, Alert) for each in actions)
        if found is not None:
            packer.kept(found)
            kept.append((world.seen, actions, found.body))
    return kept


def test_what_cannot_be_packed_is_carried_out_all_the_same(caplog):
    snapshot, actions, _ = history(30)[0]
    broken: Any = replace(snapshot, wait_spread=object())
    assert Plans().packed(broken, actions) is None
    assert "could not be packed" in caplog.text


def test_each_decision_is_kept_with_its_inputs():
    told = []
    for snapshot, actions, body in history():
        made = decisions(snapshot, actions)
        kept = unpack(body)["leases"]
        decided = [each for each in actions if not isinstance(each, Alert)]
        assert kept.keys() == made.keys() == {each.lease_id for each in decided}
        told += [(each, made[each.lease_id], kept[each.lease_id]) for each in decided]
    kinds = {type(action).__name__ for action, _, _ in told}
    assert {"Start", "Activate", "Warn", "Drain", "End", "Wait"} <= kinds
    for action, made, kept in told:
        assert (kept["words"], kept["numbers"]) == (list(made.words), made.numbers)
        assert made.numbers["action"] == type(action).__name__
        assert made.numbers["pool"] == "cards"
        assert made.words[0].startswith("GPUs of pool cards: 3, free: ")
    warned = [made for action, made, _ in told if isinstance(action, Warn) and made.for_user]
    assert warned, "somebody was asked to leave for somebody else"
    for made in warned:
        assert made.numbers["idle"] >= made.numbers["idle_limit"] == 120
        assert made.words[-1].startswith(f"It was taken for request {made.numbers['for']} of {{for")
    waits = [made for action, made, _ in told if isinstance(action, Wait)]
    assert all(made.numbers["position"] >= 1 for made in waits)


def test_policy_and_devices_are_kept_when_they_change_and_once_a_day():
    (snapshot, actions, first), second, *_ = history(30)
    sites = [unpack(body).get("site") for body in (first, second[2])]
    assert [each is not None for each in sites] == [True, False]
    packer = Plans()
    packer.kept(packer.packed(snapshot, actions))
    used = replace(snapshot, devices=tuple(replace(x, occupied_by="a") for x in snapshot.devices))
    assert "site" not in unpack(packer.packed(used, actions).body)
    for changed in (
        replace(snapshot, devices=snapshot.devices[1:]),
        replace(snapshot, policy=replace(snapshot.policy, queue_max=7)),
        replace(snapshot, now=snapshot.now + DAY),
    ):
        site = unpack(packer.packed(changed, actions).body)["site"]
        assert document.parse(site["policy"], 1) == changed.policy
        assert len(site["devices"]) == len(changed.devices)


async def test_why_a_lease_was_decided_about_is_told_to_admins_alone(site: Site) -> None:
    lease, channel, supervisor = await active_lease(site)
    admin = site.client(site.hub.admin_token())
    page = await admin.call("GET", f"leases/{lease['id']}/why?limit=50")
    assert page["total"] == len(page["items"]) >= 3
    started = next(
        each for each in page["items"] if each["to"] == "starting" and each["from"] == "queued"
    )
    assert started["planned"]
    assert started["numbers"]["free"] >= 1
    assert started["numbers"]["action"] == "Start"
    asked = page["items"][-1]
    assert (asked["who"], asked["planned"], asked["inputs"]) == ("stu", False, [])
    told = await admin.decisions(lease["id"], last=2)
    assert [each["version"] for each in told] == [each["version"] for each in page["items"][1::-1]]

    services = site.service.services
    later = NOW + 5000 * DAY
    while await services.ledger.write(retention.sweep, later, Ages()):
        pass
    again = await admin.call("GET", f"leases/{lease['id']}/why")
    assert not any(each["inputs"] for each in again["items"])
    assert any(each["planned"] for each in again["items"]), "it is said that there was a plan"

    with pytest.raises(GPULeaseError) as refused:
        await site.client(site.hub.server_token("stu")).call("GET", f"leases/{lease['id']}/why")
    assert refused.value.status == 403
    await supervisor.close()
    await channel.close()


async def test_how_far_waits_end_from_what_was_expected_is_known_after_a_restart(run) -> None:
    async with run() as site:
        site.service.services.loop._waits.spread = (-0.5, 0.25)
        _, channel, supervisor = await active_lease(site)  # a plan that is kept
        await supervisor.close()
        await channel.close()
    async with run() as again:
        assert again.service.services.loop.shown().wait_spread == (-0.5, 0.25)


async def test_a_last_plan_that_cannot_be_read_is_no_reason_not_to_start(run, tmp_path) -> None:
    async with run() as site:
        _, channel, supervisor = await active_lease(site)
        await supervisor.close()
        await channel.close()
        address = kit.options(tmp_path).database_url
    engine = make_engine(address)
    with engine.begin() as connection:
        connection.execute(sa.text("update plans set body = x'00'"))
    engine.dispose()
    assert last_spread(address) is None
    async with run() as again:
        assert again.service.services.loop.shown().wait_spread is None
