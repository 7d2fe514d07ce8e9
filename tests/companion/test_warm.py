"""A pod that stands ready, until it is somebody's."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpulease.protocol import names as protocol
from gpulease.sides.environment import MARK_ROOM
from gpulease.system.process_table import environment_marks
from tests.companion.parts import Cells, LeaseService, closing
from tests.companion.pods import Pod, admitted
from tests.helpers import wait_for_async

pytestmark = pytest.mark.processes

LOADED = "import sys; print(sorted({'torch', 'cupy', 'jax', 'tensorflow'} & set(sys.modules)))"


@contextlib.asynccontextmanager
async def ready(directory: Path) -> AsyncIterator[tuple[LeaseService, Pod]]:
    """A service, and a pod that said to it that it stands ready."""
    service = LeaseService()
    mark = f"warm-{secrets.token_hex(6)}"
    more = {
        protocol.ENV_WARM: "1",
        protocol.ENV_LEASE: mark.ljust(MARK_ROOM),
        protocol.ENV_GRACE: "30",
    }
    pod = await asyncio.to_thread(Pod, directory, service.url, more=more)
    try:
        await wait_for_async(lambda: service.of_type("ready"), 60, "the pod that stands ready")
        yield service, pod
    finally:
        await asyncio.to_thread(pod.clean_up)
        await service.stop()


def claim(service: LeaseService, **more: str) -> str:
    lease_id = f"lease-{secrets.token_hex(6)}"
    lease = {protocol.ENV_LEASE: lease_id, protocol.ENV_ATTEMPT: "2", protocol.ENV_USER: "ada"}
    service.tell({"type": "claimed", "environment": {**lease, **more}})
    return lease_id


async def test_it_becomes_the_lease_that_it_is_told_with_that_servers_variables(
    tmp_path: Path,
) -> None:
    async with ready(tmp_path) as (service, pod):
        lease_id = claim(service, COURSE="cs101", OMP_NUM_THREADS="3")
        home = await admitted(service)
        try:
            assert service.of_type("hello")[-1]["attempt"] == 2
            opened = (await home.open("k1"))["ok"]
            with closing(await Cells(opened["connection"], home).ready()) as cells:
                code = "import os, json; print(json.dumps(dict(os.environ)))"
                said = json.loads(await cells.text(code))
                assert (said["COURSE"], said["OMP_NUM_THREADS"]) == ("cs101", "3")
                assert said[protocol.ENV_LEASE].strip() == lease_id
                assert protocol.ENV_WARM not in said
                assert (await cells.text(LOADED)).strip() == "[]"
            marks = {pid: mark.strip() for pid, mark in environment_marks(protocol.ENV_LEASE)}
            assert marks[pod.process.pid] == lease_id
        finally:
            home.close()


async def test_its_first_kernel_is_the_process_that_stood_ready(tmp_path: Path) -> None:
    async with ready(tmp_path) as (service, pod):
        before = {pid for pid, _ in environment_marks(protocol.ENV_LEASE)}
        claim(service)
        home = await admitted(service)
        try:
            opened = (await home.open("k1"))["ok"]
            assert opened["pid"] in before - {pod.process.pid}
        finally:
            home.close()


async def test_it_ends_at_once_when_nobody_needs_it_any_more(tmp_path: Path) -> None:
    async with ready(tmp_path) as (service, pod):
        pod.process.terminate()
        assert await pod.ended() == 0
        assert pod.last_line() == "gpulease.companion: ended: not_needed"
        assert not service.of_type("hello")


async def test_a_break_of_the_channel_costs_it_nothing(tmp_path: Path) -> None:
    async with ready(tmp_path) as (service, _):
        service.channels[-1].close()
        await wait_for_async(lambda: len(service.of_type("ready")) > 1, 60, "the pod again")
        lease_id = claim(service)
        await wait_for_async(lambda: service.of_type("hello"), 60, "the lease's hello")
        assert lease_id


async def test_what_is_no_lease_ends_it_with_a_word(tmp_path: Path) -> None:
    async with ready(tmp_path) as (service, pod):
        claim(service, **{protocol.ENV_ATTEMPT: "many"})
        assert await pod.ended() == 2
        assert "bad_settings" in pod.last_line()


@pytest.mark.parametrize("name", [protocol.ENV_SERVICE_URL, protocol.ENV_TOKEN_FILE])
async def test_without_a_service_or_a_token_it_says_what_is_wrong(
    tmp_path: Path, name: str
) -> None:
    more = {protocol.ENV_WARM: "1", protocol.ENV_LEASE: "warm-1".ljust(MARK_ROOM), name: ""}
    pod = await asyncio.to_thread(Pod, tmp_path, "http://127.0.0.1:1/x/", more=more)
    try:
        assert await pod.ended() == 2
        assert name in pod.last_line()
    finally:
        await asyncio.to_thread(pod.clean_up)
