"""The life of a lease, seen from outside: REST, events, supervisor."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from gpulease.client import ServiceClient
from gpulease.errors import GPULeaseError
from gpulease.protocol.service import LeaseView
from tests.helpers import wait_for_async
from tests.service.kit import Server, Site, Supervisor, active_lease, connect, kernel, z85_key

RUN = "run-0123456789ab"


async def test_an_ask_is_granted_connected_returned_and_freed(site: Site) -> None:
    lease, channel, supervisor = await active_lease(site)
    assert lease["state"] == "queued"
    token = site.hub.server_token("stu")
    view = await connect(site, token, lease["id"])
    assert view["address"] == "tcp://127.0.0.1:1"
    assert view["simulated"] is True
    assert (await site.client(token).classes())[0]["free"] == 1
    returned = await site.client(token).end(lease["id"])
    assert returned["state"] == "draining"
    assert (await supervisor.next("drain"))["reason"] == "returned"
    await supervisor.say({"type": "drained", "result": "done"})
    ended = await site.lease(lease["id"], "ended")
    assert ended.end_reason == "returned"
    await supervisor.next("end")
    await wait_for_async(lambda: free(site) == 2, what="the device to be free")
    view = channel.view(lease["id"])
    assert view is not None
    assert "grant" not in view
    await channel.close()


def free(site: Site) -> int:
    return site.service.services.views.classes()[0]["free"]


async def test_only_the_servers_own_channel_learns_the_grant(site: Site) -> None:
    page = await Server.join(site, site.hub.page_token("stu"))
    lease, channel, supervisor = await active_lease(site)
    await wait_for_async(lambda: (page.view(lease["id"]) or {}).get("state") == "active")
    shown = [m for m in page.messages if m["type"] == "lease"]
    assert shown
    assert all("grant" not in message["lease"] for message in shown)
    assert (await channel.grant(lease["id"]))["attempt"] == 1
    for peer in (page, channel, supervisor):
        await peer.close()


async def test_a_repeated_ask_is_the_same_lease(site: Site) -> None:
    client = site.client(site.hub.server_token("stu"))
    first = await client.ask({"origin": "magic"})
    again = await client.ask({"origin": "magic"})
    assert again["id"] == first["id"]


async def test_the_same_key_is_the_same_ask_even_after_the_end(site: Site) -> None:
    client = site.client(site.hub.server_token("stu"))
    first = await client.ask({"origin": "magic"}, key="one")
    await client.end(first["id"])
    await site.lease(first["id"], "ended")
    assert (await client.ask({"origin": "magic"}, key="one"))["id"] == first["id"]
    assert (await client.ask({"origin": "magic"}, key="two"))["id"] != first["id"]
    with pytest.raises(GPULeaseError) as refused:
        await client.ask({"origin": "lab"}, key="one")
    assert refused.value.reason == "key_reused"


async def test_ask_and_withdraw_at_once_leaves_nothing(site: Site) -> None:
    client = site.client(site.hub.server_token("stu"))
    for _ in range(5):
        lease = await client.ask({"origin": "magic"})
        await client.end(lease["id"])
        ended = await site.lease(lease["id"], "ended")
        assert ended.end_reason in {"withdrawn", "returned"}
    await wait_for_async(lambda: free(site) == 2, what="both devices to be free")


async def test_an_ask_while_draining_makes_the_same_lease_active_again(site: Site) -> None:
    lease, channel, supervisor = await active_lease(site)
    client = site.client(site.hub.server_token("stu"))
    await client.end(lease["id"])
    await supervisor.next("drain")
    again = await client.ask({"origin": "magic"})
    assert (again["id"], again["state"]) == (lease["id"], "active")
    await supervisor.next("resume")
    await supervisor.close()
    await channel.close()


async def expected(site: Site, token: str, lease_id: str) -> LeaseView:
    """Wait until a request is told between which times it starts."""

    async def told() -> LeaseView | None:
        view = await site.client(token).lease(lease_id)
        return view if view["expected_between"] else None

    return await wait_for_async(told, what="an expected time", every=0.2)


async def test_who_waits_sees_position_and_reason_and_is_next_when_one_ends(hub, run) -> None:
    for name in ("ann", "bob"):
        hub.user(name, "")
    async with run(gpus=1) as site:
        lease, channel, supervisor = await active_lease(site, seconds=3000)
        await connect(site, hub.server_token("stu"), lease["id"])  # it is used until its end
        second = await site.client(hub.server_token("ann")).ask({})
        assert second["expected_between"] == []
        third = await site.client(hub.server_token("bob")).ask({})
        await wait_for_async(
            lambda: site.service.services.ledger.leases[third["id"]].reason == "no_capacity", 30
        )
        assert await site.place(third["id"]) == 2
        shown = await site.client(hub.server_token("bob")).lease(third["id"])
        assert (shown["position"], shown["reason"]) == (2, "no_capacity")
        assert "number 2" in shown["sentence"]
        # As if waits of late had ended between half and twice of what was expected.
        site.service.services.loop._waits.spread = (-0.7, 0.7)
        told = await expected(site, hub.server_token("ann"), second["id"])
        early, late = (datetime.fromisoformat(each) for each in told["expected_between"])
        now, start = datetime.now(UTC), datetime.fromisoformat(told["expected_start"])
        assert now < early < start < late
        assert (late - now) / (start - now) == pytest.approx(2, rel=0.1)
        await site.client(hub.server_token("stu")).end(lease["id"])
        await supervisor.say({"type": "drained", "result": "done"})
        await site.lease(second["id"], "starting")
        await channel.close()


async def test_a_lease_that_is_what_was_asked_for_has_nothing_to_move_to(site: Site) -> None:
    lease, channel, _ = await active_lease(site)
    client = site.client(site.hub.server_token("stu"))
    with pytest.raises(GPULeaseError) as refused:
        await client.upgrade(lease["id"])
    assert (refused.value.reason, refused.value.status) == ("nothing_wished", 409)
    assert (await client.lease(lease["id"]))["upgrade"] is None
    with pytest.raises(GPULeaseError) as unknown:
        await site.client(site.hub.page_token("other")).upgrade(lease["id"])
    assert unknown.value.reason == "no_such_lease"
    await channel.close()


async def test_an_idle_lease_is_warned_kept_warned_and_taken(run) -> None:
    outs = {"idle": 0.3, "claim": 0.3, "warning": 1.5, "keep": 0.3, "keeps": 1}
    async with run(outs=outs) as site:
        lease, channel, supervisor = await active_lease(site)
        client = await _claimed(site, lease)
        idling = asyncio.ensure_future(_idle(supervisor))
        warned = await supervisor.next("warn")
        assert warned["reason"] == "idle"
        await site.lease(lease["id"], "warned")
        assert (await client.keep(lease["id"]))["state"] == "active"
        await supervisor.next("clear")
        await supervisor.next("drain")
        with pytest.raises(GPULeaseError) as refused:
            await client.keep(lease["id"])
        assert refused.value.reason == "keep_not_possible"
        await supervisor.say({"type": "drained", "result": "done"})
        assert (await site.lease(lease["id"], "ended")).end_reason == "idle"
        idling.cancel()
        await channel.close()


async def _claimed(site: Site, lease: LeaseView) -> ServiceClient:
    """Connect a kernel, so that the lease counts as claimed, and return its server's client."""
    token = site.hub.server_token("stu")
    await connect(site, token, lease["id"])
    return site.client(token)


async def _idle(supervisor: Supervisor, **activity: float) -> None:
    while True:
        await supervisor.live(**activity)  # type: ignore[arg-type]
        await asyncio.sleep(0.2)


async def test_a_lease_in_use_stays_and_its_server_is_kept_from_the_hubs_culler(run, hub) -> None:
    async with run(outs={"idle": 0.2, "claim": 0.2}) as site:
        lease, channel, supervisor = await active_lease(site)
        await _claimed(site, lease)
        working = asyncio.ensure_future(_idle(supervisor, use=0.9, threads=1))
        await wait_for_async(lambda: hub.activity, what="the hub to be told of activity")
        user, body = hub.activity[0]
        assert user == "stu"
        assert "" in body["servers"]
        assert site.service.services.ledger.leases[lease["id"]].state == "active"
        assert not supervisor.of("warn")
        working.cancel()
        await supervisor.close()
        await channel.close()


async def test_a_stopped_server_ends_its_lease(site: Site, hub) -> None:
    lease, channel, supervisor = await active_lease(site)
    hub.users["stu"]["servers"] = {}
    await channel.close()
    assert (await site.lease(lease["id"], "ended")).end_reason == "server_gone"
    await supervisor.next("end")


async def test_a_background_runs_server_is_not_offered_and_its_end_is_no_loss(site, hub) -> None:
    hub.user("stu", "", RUN)
    lease, channel, supervisor = await active_lease(site, server=RUN)
    client = site.client(site.hub.server_token("stu"))
    assert (await client.lease(lease["id"]))["run"] == RUN.removeprefix("run-")
    assert [each["name"] for each in (await client.call("GET", "servers"))["items"]] == [""]
    hub.user("stu", "")
    await channel.close()
    await site.lease(lease["id"], "ended")
    ended = await client.lease(lease["id"])
    assert ended["sentence"] == "The server of this background run has stopped."
    await supervisor.next("end")


async def test_one_wrong_look_at_a_server_that_holds_its_channel_ends_nothing(
    site: Site, hub, monkeypatch
) -> None:
    lease, channel, supervisor = await active_lease(site)
    services = site.service.services
    whole, looks = services.hub.running, []

    async def running(users: set[str]) -> dict:
        looks.append(users)
        return {user: {} for user in users} if len(looks) == 1 else await whole(users)

    monkeypatch.setattr(services.hub, "running", running)
    await wait_for_async(lambda: len(looks) > 3, what="three looks at the hub")
    assert services.ledger.leases[lease["id"]].state == "active"
    hub.users["stu"]["servers"] = {}
    assert (await site.lease(lease["id"], "ended")).end_reason == "server_gone"
    await supervisor.close()
    await channel.close()


async def test_a_hub_that_is_away_ends_nothing(site: Site, hub) -> None:
    lease, channel, supervisor = await active_lease(site)
    hub.down = True
    await wait_for_async(lambda: site.service.services.hub.problem, what="the hub to be missed")
    assert site.service.services.ledger.leases[lease["id"]].state == "active"
    assert site.service.services.health()["status"] == "degraded"
    await supervisor.close()
    await channel.close()


async def test_a_supervisor_whose_server_is_gone_ends_the_lease(site: Site) -> None:
    lease, channel, supervisor = await active_lease(site)
    await supervisor.say({"type": "bye", "reason": "parent_gone"})
    assert (await site.lease(lease["id"], "ended")).end_reason == "server_gone"
    await supervisor.close()
    await channel.close()


async def test_a_supervisor_that_fails_to_start_is_tried_again(site: Site) -> None:
    token = site.hub.server_token("stu")
    channel = await Server.join(site, token)
    lease = await site.client(token).ask({})
    grant = await channel.grant(lease["id"])
    report = {"type": "supervisor", "lease_id": lease["id"], "attempt": grant["attempt"]}
    await channel.say({**report, "state": "failed", "detail": "no module", "pids": []})
    queued = await site.lease(lease["id"], "queued")
    assert queued.reason == "supervisor_failed"
    assert queued.failures == 1
    await wait_for_async(lambda: free(site) == 2, what="the device to be free")
    await channel.close()


async def test_a_page_asks_before_the_server_runs_and_is_served_when_it_does(site, hub) -> None:
    hub.users["stu"]["servers"] = {}
    client = site.client(hub.page_token("stu"))
    lease = await client.ask({"origin": "page", "server": ""})
    waiting = await wait_for_async(
        lambda: site.service.services.ledger.leases[lease["id"]].reason == "server_starting", 30
    )
    assert waiting
    hub.user("stu", "")
    await site.lease(lease["id"], "starting")
    shown = await client.lease(lease["id"])
    assert shown["click_runs_cells"] == "auto"


async def test_a_page_must_say_which_of_several_servers(site, hub) -> None:
    hub.user("stu", "", "second")
    client = site.client(hub.page_token("stu"))
    with pytest.raises(GPULeaseError) as refused:
        await client.ask({"origin": "page"})
    assert refused.value.reason == "which_server"
    assert refused.value.numbers["servers"] == ["", "second"]
    assert (await client.ask({"origin": "page", "server": "second"}))["server"] == "second"


async def test_a_click_for_a_server_that_was_seen_running_waits_for_no_hub(site, hub) -> None:
    client = site.client(hub.page_token("stu"))
    await client.call("GET", "servers")  # as the page does when it is opened and looked at
    asked = len(hub.asked)
    assert (await client.ask({"origin": "page", "server": ""}))["state"] in ("queued", "starting")
    # The watch on the hub, which may look in between, asks who the service is.
    assert [path for path in hub.asked[asked:] if path != "/hub/api/user"] == []
    with pytest.raises(GPULeaseError) as refused:
        await client.ask({"origin": "page", "server": "invented"})
    assert refused.value.reason == "no_such_server"


async def test_a_page_with_no_server_running_must_say_so(site, hub) -> None:
    hub.users["stu"]["servers"] = {}
    with pytest.raises(GPULeaseError) as refused:
        await site.client(hub.page_token("stu")).ask({"origin": "page"})
    assert refused.value.reason == "no_server"


async def test_the_holder_alone_reads_which_notebook_uses_the_gpu(site: Site, hub) -> None:
    lease, channel, supervisor = await active_lease(site)
    report = kernel("k1", notebook="week1/lab.ipynb", leases=[lease["id"]])
    await channel.say({"type": "kernels", "kernels": [report]})
    own, admin = site.client(hub.page_token("stu")), site.client(hub.admin_token())

    async def named() -> bool:
        return (await own.lease(lease["id"]))["notebook"] == "week1/lab.ipynb"

    await wait_for_async(named, what="the notebook's name")
    assert (await admin.lease(lease["id"]))["notebook"] == ""
    await supervisor.close()
    await channel.close()


async def test_a_kernel_that_ended_loses_its_key(site: Site) -> None:
    lease, channel, supervisor = await active_lease(site)
    await channel.say({"type": "kernels", "kernels": [kernel("k1"), kernel("k2")]})
    key = z85_key()
    await site.client(site.hub.server_token("stu")).connection(lease["id"], key, "k1")
    await channel.say({"type": "kernels", "kernels": [kernel("k2")]})
    revoked = await supervisor.next("revoke")
    assert (revoked["client_key"], revoked["kernel_id"]) == (key, "k1")
    await supervisor.close()
    await channel.close()
