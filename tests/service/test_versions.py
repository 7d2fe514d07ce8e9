"""Companions of other versions: what the first release said is taken, another major is named."""

from __future__ import annotations

from tests.service.kit import Server, Site, Supervisor, connect

#: What every companion of protocol 1 says: nothing may ever be asked of it beyond this.
FIRST = {"pid": None, "attempt": None, "python": "3.11.2", "protocol": "1.0"}


async def granted(site: Site) -> tuple[str, Server, str]:
    token = site.hub.server_token("stu")
    channel = await Server.join(site, token)
    lease = await site.client(token).ask({"origin": "magic"})
    return token, channel, lease["id"]


async def test_the_first_releases_companion_is_understood_by_every_1_x(site: Site) -> None:
    """Its hello, its second of activity and its answer to a drain; and members of a newer one."""
    token, channel, lease_id = await granted(site)
    grant = await channel.grant(lease_id)
    newer = {"protocol": "1.99", "shards": {"a": [1]}, "since": 3}
    for more in (FIRST, FIRST | newer):
        supervisor = await Supervisor.start(site, lease_id, grant, **more)
        await supervisor.next("lease")
        await site.lease(lease_id, "active")
        sample = {"at": "2026-01-01T00:00:00+00:00", "cells": 1}
        await supervisor.say({"type": "activity", "samples": [sample], "new": True})
        view = await connect(site, token, lease_id)
        assert view["protocol"].startswith("1.")
    await site.client(token).end(lease_id)
    await supervisor.next("drain")
    await supervisor.say({"type": "drained", "result": "done"})
    await site.lease(lease_id, "ended")
    await channel.close()


async def test_another_major_version_is_the_reason_of_the_failed_start(site: Site) -> None:
    token, channel, lease_id = await granted(site)
    supervisor = await Supervisor.start(
        site, lease_id, await channel.grant(lease_id), protocol="2.0"
    )
    end = await supervisor.next("end")
    assert end["reason"] == "protocol"
    await site.lease(lease_id, "queued")
    lease = await site.client(token).lease(lease_id)
    assert lease["reason"] == "other_version"
    assert "does not understand" in lease["sentence"]
    assert "bring it up to date" in lease["next_step"]
    await channel.close()


async def test_a_forged_hello_of_another_version_changes_nothing(site: Site) -> None:
    """Whoever has the lease's token cannot end it by pretending to be too new."""
    _token, channel, lease_id = await granted(site)
    grant = await channel.grant(lease_id)
    supervisor = await Supervisor.start(site, lease_id, grant)
    await site.lease(lease_id, "active")
    forged = await Supervisor.start(site, lease_id, grant, protocol="7.0")
    await forged.next("end")
    assert site.service.services.links.state(lease_id).connected
    await site.lease(lease_id, "active")
    for peer in (forged, supervisor, channel):
        await peer.close()
