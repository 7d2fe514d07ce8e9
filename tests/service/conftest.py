from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpulease.policy import document
from gpulease.providers.local import processes, provider
from gpulease.service.rest import openapi
from gpulease.service.routes import OPERATIONS
from tests.service import kit
from tests.store.conftest import cluster  # noqa: F401 - a fixture: a private PostgreSQL

# What the fixtures of a file put in place goes with it: other rooms run in the same process.
WRITTEN: dict[str, str] = {}
PARSED = cache(document.parse)
_Schemas = openapi._Schemas


@cache
def schemas() -> openapi._Schemas:
    return _Schemas(list(OPERATIONS))


@pytest.fixture(autouse=True, scope="module")
def policies_read_and_written_once() -> Iterator[None]:
    """Read and write each policy once: nearly all services here start with the same."""
    dump = document.dump

    def dumped(policy: document.PolicyDocument) -> str:
        found = repr(policy)
        if found not in WRITTEN:
            WRITTEN[found] = dump(policy)
        return WRITTEN[found]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "dump", dumped)
        patch.setattr(document, "parse", PARSED)
        yield


@pytest.fixture(autouse=True, scope="module")
def shapes_described_once() -> Iterator[None]:
    """Work the schemas of the API out once: they are the same whatever the service's address."""
    made = schemas()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openapi, "_Schemas", lambda _listed: made)
        yield


@pytest.fixture(autouse=True, scope="module")
def no_process_is_a_leases() -> Iterator[None]:
    """Look through no processes of the machine: supervisors are played here, and start none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "marked", dict)
        patch.setattr(provider, "process_table", dict)
        yield


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[kit.Hub]:
    """A hub's API, and an environment that leads there."""
    async with kit.hub_api() as found:
        kit.set_environment(monkeypatch.setenv, found)
        found.user("stu", "", groups=("cs101",))
        found.user("eve", "", groups=("cs102",))
        yield found


@pytest.fixture
def run(hub: kit.Hub, tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[kit.Site]]:
    """Run a service with changed options."""

    def start(**changed: Any) -> AbstractAsyncContextManager[kit.Site]:
        return kit.running(hub, tmp_path, **changed)

    return start


@pytest.fixture
async def site(hub: kit.Hub, tmp_path: Path) -> AsyncIterator[kit.Site]:
    """A running service with two simulated GPUs."""
    async with kit.running(hub, tmp_path) as found:
        yield found


@pytest.fixture(scope="session")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Certificates as a hub with ``internal_ssl`` makes them, and a stranger's."""
    from certipy import Certipy

    pairs, folder = {}, tmp_path_factory.mktemp("pki")
    for name, authority in (("hub", "hub-ca"), ("service", "services-ca"), ("other", "other-ca")):
        made = Certipy(store_dir=str(folder))
        root = made.create_ca(authority, overwrite=True)
        signed = made.create_signed_pair(
            name, authority, alt_names=["IP:127.0.0.1", "DNS:localhost"], overwrite=True
        )
        pairs[name] = {**signed["files"], "authority": root["files"]["cert"]}
    return pairs
