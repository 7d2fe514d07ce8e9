"""Companions and servers of other versions: all of one protocol are taken, others are refused."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from tornado.httpclient import AsyncHTTPClient

from gpulease.protocol.names import HEADER_PROTOCOL, PROTOCOL_VERSION
from tests.another_version import NEXT_MINOR, NEXT_PROTOCOL, copy_of_package
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


#: A notebook server's own client, which says what it is answered.
ASKS = """
import asyncio, sys
from gpulease import __version__
from gpulease.client import ServiceClient
from gpulease.errors import GPULeaseError

async def ask():
    try:
        lease = await ServiceClient(sys.argv[1], sys.stdin.read()).ask()
        return lease["state"]
    except GPULeaseError as error:
        return f"{error.reason}: {error} {error.next_step}"

print(__version__, asyncio.run(ask()))
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("protocol", "answer"),
    [
        (PROTOCOL_VERSION, "queued"),
        (
            NEXT_PROTOCOL,
            f"wrong_protocol: Your server speaks protocol {NEXT_PROTOCOL}, the lease service"
            f" {PROTOCOL_VERSION}.",
        ),
    ],
)
async def test_a_server_of_the_next_version_may_ask_if_it_speaks_the_protocol(
    site: Site, tmp_path: Path, protocol: str, answer: str
) -> None:
    other = copy_of_package(tmp_path, NEXT_MINOR, protocol)
    asking = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ASKS, site.url),
        cwd=other.folder,
        env=other.environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await asking.communicate(site.hub.server_token("stu").encode())
    assert said.decode().startswith(f"{NEXT_MINOR} {answer}")
    if "wrong_protocol" in answer:
        assert "Restart your server." in said.decode()


async def test_no_channel_opens_for_a_server_of_another_protocol(site: Site) -> None:
    refused = await AsyncHTTPClient().fetch(
        f"{site.url}api/events",
        headers={
            "Authorization": f"token {site.hub.server_token('stu')}",
            HEADER_PROTOCOL: NEXT_PROTOCOL,
        },
        raise_error=False,
    )
    assert refused.code == 426
    assert b"wrong_protocol" in refused.body
