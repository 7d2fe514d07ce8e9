"""The API does what its description says, whoever asks: schemathesis sends what fits and what not.

Every check of schemathesis is on: no 5xx, no status and no content type that is not described, no
answer off its schema, nothing taken that the description forbids, nothing refused for its form that
it allows, nothing given without the credentials it names.
"""

from __future__ import annotations

import asyncio
import copy
import random
import re
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from schemathesis import HookContext
from schemathesis.config import SchemathesisConfig
from schemathesis.config._checks import NEGATIVE_DATA_REJECTION_EXPECTED_STATUSES as REFUSED
from schemathesis.config._checks import POSITIVE_DATA_ACCEPTANCE_EXPECTED_STATUSES as ACCEPTED
from schemathesis.engine import events, from_schema

from gpulease.service.hubs.auth import SCOPE_REQUEST, SCOPE_RESERVE
from gpulease.service.rest.openapi import description
from gpulease.service.routes import OPERATIONS
from tests.service import kit

POLICY = """\
pools: {simulated-gpu: {evidence: process}}
classes: {gpu: {pool: simulated-gpu, max_count: 2}}
limits: {changes_per_minute: 1000000, waiting_per_user: 5, queue_max: 20}
time_outs: {warm_up: 0, idle: 1h}
reservations: {advance: 30d}
"""
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).date()
RESERVATION = {
    "name": "lab",
    "group": "cs101",
    "gpu_class": "gpu",
    "seats": 1,
    "start": f"{TOMORROW}T14:00",
    "end": "16:00",
    "zone": "Europe/Berlin",
    "repeat": "FREQ=DAILY;COUNT=3",
}
#: What the form of a request cannot say is refused for what it means: an unknown class, a full
#: timetable (422), a body of more bytes than all of its members may have together (413), an address
#: that wants a websocket (426), too much of something (429).
MEANT = ["413", "422", "426", "429"]


@dataclass
class Described:
    """A running service: where it is, and what each role sends to say who they are."""

    url: str
    headers: dict[str, dict[str, str]]


@asynccontextmanager
async def site(path: Path) -> AsyncIterator[Described]:
    """Run a service with leases, a reservation and incidents, so that addresses lead somewhere."""
    patch = pytest.MonkeyPatch()
    async with AsyncExitStack() as stack:
        stack.callback(patch.undo)
        hub = await stack.enter_async_context(kit.hub_api())
        kit.set_environment(patch.setenv, hub)
        hub.user("stu", "", groups=("cs101",))
        hub.user("ina", "", groups=("cs101",))
        first = path / "policy.yaml"
        first.write_text(POLICY, encoding="utf-8")
        found = await stack.enter_async_context(
            kit.running(hub, path, gpus=3, first_policy_file=first)
        )
        lease, channel, supervisor = await kit.active_lease(found)
        stack.push_async_callback(channel.close)
        stack.push_async_callback(supervisor.close)
        grant = await channel.grant(lease["id"])
        instructor = hub.token(
            "ina",
            f"{SCOPE_REQUEST}!user=ina",
            f"{SCOPE_RESERVE}!group=cs101",
            "access:servers!server=ina/",
        )
        await found.client(instructor).call("POST", "reservations", RESERVATION)
        tokens = {
            "student": f"token {hub.server_token('stu')}",
            "instructor": f"token {instructor}",
            "admin": f"token {hub.admin_token()}",
            "supervisor": f"Bearer {grant['token']}",
        }
        headers = {role: {"Authorization": token} for role, token in tokens.items()}
        yield Described(found.url, {"nobody": {}, **headers})


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Described]:
    """The service on a thread of its own, because schemathesis calls it synchronously."""
    ready: Future[Described] = Future()
    loop, over = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        try:
            async with site(tmp_path_factory.mktemp("described")) as found:
                ready.set_result(found)
                await over.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        yield ready.result(60)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
        loop.close()


def closed(document: dict[str, Any]) -> dict[str, Any]:
    """Return the description with its answers closed: what it does not name is off the schema.

    Those who read answers shall pass over what a newer service adds, so it does not say so itself.
    """
    found = copy.deepcopy(document)
    for schema in found["components"]["schemas"].values():
        if schema.get("type") == "object" and "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return found


def map_headers(context: HookContext, headers: dict[str, Any] | None) -> dict[str, Any] | None:
    """Leave out a drawn host: tornado refuses what is none before the service sees it."""
    return {k: v for k, v in headers.items() if k.lower() != "host"} if headers else headers


def failures(
    described: Described,
    role: str,
    addresses: str,
    modes: str,
    *,
    thorough: bool,
    examples: int,
    seed: int,
) -> list[str]:
    """Return what schemathesis finds as one role at the addresses that a pattern names.

    Args:
        thorough: whether each bound of each member is tried, too, and one call after another.
    """
    checks: dict[str, Any] = {
        "enabled": True,
        "positive_data_acceptance": {"expected-statuses": [*ACCEPTED, *MEANT]},
        "negative_data_rejection": {"expected-statuses": [*REFUSED, "413", "426"]},
        # Nothing is deleted: what has ended and what was cancelled stays to be read.
        "use_after_free": {"enabled": False},
    }
    config = SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "base-url": f"{described.url}api",
            "suppress-health-check": ["all"],  # how quick the machine is says nothing here
            "headers": described.headers[role],
            "checks": checks,
            "phases": {each: {"enabled": thorough} for each in ("coverage", "stateful")},
            "generation": {"mode": modes, "max-examples": examples, "database": "none"},
        }
    )
    document = closed(description(kit.PREFIX, OPERATIONS))
    schema = schemathesis.openapi.from_dict(document, config=config).include(path_regex=addresses)
    schema.hook(map_headers)
    found: dict[str, str] = {}
    again: set[str] = set()
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            for check in chain.from_iterable(event.recorder.checks.values()):
                if (failed := check.failure_info) is not None:
                    words = f"{event.label}: {failed.failure}\n{failed.code_sample:.2000}"
                    found[f"{event.label} {check.name}"] = words
        elif isinstance(event, events.NonFatalError) and _of_the_interpreter(event.value):
            again.add(str(event.label).partition(" ")[2])
        elif isinstance(event, events.NonFatalError | events.FatalError):
            found[str(event)] = str(event)
    more = [
        each
        for path in sorted(again)
        for each in failures(
            described,
            role,
            f"^{re.escape(path)}$",
            modes,
            thorough=thorough,
            examples=examples,
            seed=seed + 1,
        )
    ]
    return [*found.values(), *more]


def _of_the_interpreter(error: BaseException) -> bool:
    """Tell whether an error is one of Python 3.11, where two threads compile at the same time.

    https://github.com/python/cpython/issues/106905
    """
    return isinstance(error, SystemError) and "AST constructor recursion depth" in str(error)


#: Where each role may do most; at night each goes everywhere, as nobody and as a supervisor too.
ROOMS = {
    "student": "leases|classes|servers|events|/me|health|openapi",
    "instructor": "reservations",
    "admin": "policy|incidents",
}


@pytest.mark.parametrize("role", ROOMS)
def test_the_service_does_what_its_description_says(described: Described, role: str) -> None:
    found = failures(described, role, ROOMS[role], "all", thorough=False, examples=1, seed=8)
    assert not found, f"{len(found)} for {role}:\n\n" + "\n\n".join(found)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("role", [*ROOMS, "nobody", "supervisor"])
def test_the_service_does_what_its_description_says_everywhere(
    described: Described, role: str
) -> None:
    seed = random.randrange(2**32)
    found = failures(described, role, "", "all", thorough=True, examples=100, seed=seed)
    assert not found, f"seed {seed}, {len(found)} for {role}:\n\n" + "\n\n".join(found)
