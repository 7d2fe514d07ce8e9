"""A class that begins: many people ask at once, and every page of theirs watches.

The service runs in a process of its own, so that its memory and its work are its own
(``python -m tests.service.crowd FOLDER HUB OPTIONS``).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from gpulease.service.app import spare_the_collector
from tests.helpers import wait_for_async
from tests.service import kit

#: Twice a second is 120 in a minute, and each end is a change as well.
POLICY = """\
pools: {{simulated-gpu: {{evidence: process}}}}
classes: {{gpu: {{pool: simulated-gpu}}}}
limits: {{changes_per_minute: 600, queue_max: 10000}}
time_outs: {{warm_up: 0, idle: 1h, drain_max: 1s, start_max: {start_max}}}
"""
ROOT = Path(__file__).parents[2]


async def _serve(folder: Path, hub: kit.Hub, options: dict[str, Any]) -> None:
    kit.set_environment(os.environ.__setitem__, hub)
    first = folder / "policy.yaml"
    start_max = options.pop("start_max", "1m")  # nobody's server runs: so long a lease stands
    first.write_text(POLICY.format(start_max=start_max), encoding="utf-8")
    usual = {"gpus": 4, "tick": 1.0, "hub_seconds": 10.0, "first_policy_file": first}
    async with kit.running(hub, folder, **{**usual, **options}) as site:
        pages = json.loads(await asyncio.to_thread(sys.stdin.readline))
        cookies = {name: kit.cookie_of(site, page) for name, page in pages.items()}
        spare_the_collector()
        sys.stdout.write(json.dumps({"url": site.url, "cookies": cookies}) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


@dataclass
class Person:
    """One person: what they asked for, and what each of their pages knows."""

    name: str
    server_token: str
    page_token: str
    cookie: dict[str, str] = field(default_factory=dict)  # a logged-in browser's: name and value
    new: set[str] = field(default_factory=set)  # leases that were made for them
    pages: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    seen: dict[tuple[str, str], float] = field(default_factory=dict)  # lease, state: when, first


@dataclass
class Crowd:
    """Everybody, and the service that they ask."""

    url: str
    people: list[Person]
    admin: Person  # who sees everybody's leases
    process: psutil.Process
    http: aiohttp.ClientSession
    hub: kit.Hub
    seconds: list[float] = field(default_factory=list)  # how long each answer to an ask took
    readers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def memory(self) -> int:
        """Bytes that the service has."""
        return int(self.process.memory_info().rss)

    @property
    def worked(self) -> float:
        """Seconds of processor time that the service has taken."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    async def watch(self, channels: int, only: Person | None = None) -> None:
        """Open so many pages, everybody's in turn or one person's."""
        for number in range(channels):
            person = only or self.people[number % len(self.people)]
            page: dict[str, dict[str, Any]] = {}
            person.pages.append(page)
            socket = await self.http.ws_connect(
                f"{self.url}api/events", headers={"Authorization": f"token {person.page_token}"}
            )
            self.readers.append(asyncio.create_task(self._read(socket, page, person)))

    async def leave(self) -> None:
        """Close everybody's pages."""
        for reader in self.readers:
            reader.cancel()
        await asyncio.gather(*self.readers, return_exceptions=True)

    async def ask(self, each: int, pace: float = 0.0) -> None:
        """Have everybody ask so many times, ``pace`` seconds apart; who has something ends it."""
        began = time.monotonic()
        await asyncio.gather(*(self._asks(p, each, pace, began) for p in self.people))

    async def end(self) -> None:
        """Have everybody give back what they have."""
        await asyncio.gather(*(self.gives_back(person) for person in self.people))

    def unaware(self) -> list[str]:
        """Return the leases whose end has not come to each page of their holder."""
        return [
            lease
            for person in self.people
            for lease in sorted(person.new)
            if any(page.get(lease, {}).get("state") != "ended" for page in person.pages)
        ]

    async def listed(self, person: Person) -> int:
        """Return how many leases the service's history has of somebody."""
        answer = await self._call(person, "GET", "leases?mine=1&limit=0")
        return int(answer["total"])

    async def _asks(self, person: Person, each: int, pace: float, began: float) -> None:
        first = hash(person.name) % 1000 / 1000 * pace
        for number in range(each):
            await asyncio.sleep(max(0.0, began + first + number * pace - time.monotonic()))
            if number % 4 == 3:
                await self.gives_back(person)
            await self.asks(person)

    async def asks(self, person: Person) -> str:
        """Have somebody ask once; return the lease's id."""
        asked = time.perf_counter()
        lease = await self._call(person, "POST", "leases", {})
        self.seconds.append(time.perf_counter() - asked)
        person.new.add(lease["id"])
        return str(lease["id"])

    async def gives_back(self, person: Person) -> None:
        """End whatever somebody has."""
        live = await self._call(person, "GET", "leases?mine=1&state=live&limit=5")
        for lease in live["items"]:
            await self._call(person, "DELETE", f"leases/{lease['id']}", {})

    async def _call(self, person: Person, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"token {person.server_token}"}
        async with self.http.request(
            method, f"{self.url}api/{path}", json=body, headers=headers
        ) as response:
            answer = await response.json(content_type=None)
            assert response.status < 300, f"{method} {path}: {response.status} {answer}"
            return answer

    async def _read(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        page: dict[str, dict[str, Any]],
        person: Person,
    ) -> None:
        try:
            async for message in socket:
                found = json.loads(message.data)
                changed = [found["lease"]] if found["type"] == "lease" else found.get("leases", ())
                page.update((lease["id"], lease) for lease in changed)
                now = time.perf_counter()
                for lease in changed:
                    person.seen.setdefault((lease["id"], lease["state"]), now)
        finally:
            await socket.close()


@asynccontextmanager
async def crowd(folder: Path, people: int, **options: Any) -> AsyncIterator[Crowd]:
    """Run the service with these options, and so many people who may ask it."""
    async with kit.hub_api() as hub, _service(folder, hub.url, options) as process:
        everybody = [_enrolled(hub, f"p{number}") for number in range(people)]
        assert process.stdin is not None
        assert process.stdout is not None
        admin = Person("root", "", hub.admin_token())
        pages = {p.name: p.page_token for p in (*everybody, admin)}
        process.stdin.write(json.dumps(pages).encode() + b"\n")
        found = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        for person in (*everybody, admin):
            person.cookie = _cookie(found["cookies"][person.name])
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as http:
            made = Crowd(found["url"], everybody, admin, psutil.Process(process.pid), http, hub)
            try:
                yield made
            finally:
                await made.leave()


@asynccontextmanager
async def _service(
    folder: Path, hub_url: str, options: dict[str, Any]
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.service.crowd", str(folder), hub_url, json.dumps(options),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT, limit=2**24,
    )  # fmt: skip
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 60)


def _enrolled(hub: kit.Hub, name: str) -> Person:
    hub.user(name, "", groups=("cs101",))
    return Person(name, hub.server_token(name), hub.page_token(name))


def _cookie(text: str) -> dict[str, str]:
    name, _, value = text.partition("=")
    return {"name": name, "value": value}


async def settled(made: Crowd) -> None:
    """Wait until every page knows the end of every lease."""
    await wait_for_async(lambda: not made.unaware(), 120, "that each page knows each end")


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), kit.Hub(sys.argv[2]), json.loads(sys.argv[3])))
