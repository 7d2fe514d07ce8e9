"""Batches reach the service over TLS with the token of the moment; what it has not waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gpulease.errors import GPULeaseError
from gpulease.gpus.agent import posting
from gpulease.gpus.agent.ledger import Backlog
from gpulease.gpus.agent.posting import Poster, Target, checked
from tests.gpus.service import certificate, serving
from tests.gpus.test_ledger import batch
from tests.helpers import wait_for_async


@pytest.fixture
def token(tmp_path: Path) -> Path:
    found = tmp_path / "token"
    found.write_text("first\n")
    return found


@pytest.fixture
def ledger() -> Iterator[Backlog]:
    found = Backlog(None)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(posting, "_LONGEST_PAUSE", 0.05)


@asynccontextmanager
async def running(poster: Poster) -> AsyncIterator[None]:
    task = asyncio.create_task(poster.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def emptied(ledger: Backlog) -> None:
    await wait_for_async(lambda: ledger.waiting().batches == 0, 30, "everything taken")


async def test_what_waits_is_posted_and_gone_and_the_token_is_read_anew(
    ledger: Backlog, token: Path
) -> None:
    async with serving() as service:
        poster = Poster(Target(service.url, token), ledger)
        async with running(poster):
            ledger.add(batch())
            poster.wake()
            await emptied(ledger)
            token.write_text("second")  # noqa: ASYNC240 - a line in a test's own directory
            ledger.add(batch())
            poster.wake()
            await emptied(ledger)
    assert service.tokens == ["Bearer first", "Bearer second"]
    assert service.sequences == [[1], [2]]
    assert {post["run"] for post in service.posts} == {ledger.run}
    assert poster.problem == ""
    assert poster.resources == {"r": {"pool": "p", "gpu_class": "c"}}


class Hasty(Backlog):
    """Gets a batch just after it said that nothing waits, as happens between two threads."""

    poster: Poster | None = None
    loop: asyncio.AbstractEventLoop

    def next(self, most: int, bytes_max: int) -> list[tuple[int, bytes]]:
        found = super().next(most, bytes_max)
        if self.poster is not None:
            poster, self.poster = self.poster, None
            self.add(batch())
            self.loop.call_soon_threadsafe(poster.wake)
        return found


async def test_a_batch_that_comes_while_the_ledger_is_read_is_not_overlooked(token: Path) -> None:
    ledger = Hasty(None)
    ledger.loop = asyncio.get_running_loop()
    async with serving() as service:
        poster = ledger.poster = Poster(Target(service.url, token), ledger)
        async with running(poster):
            await wait_for_async(lambda: service.sequences == [[1]], 30, "the batch")
    ledger.close()


async def test_a_service_that_is_away_loses_nothing_and_hears_the_newest_first(
    ledger: Backlog, token: Path
) -> None:
    async with serving() as service:
        url = service.url
    outcomes: list[str] = []
    poster = Poster(Target(url, token), ledger, outcomes.append)
    for _ in range(130):
        ledger.add(batch())
    async with running(poster):
        await wait_for_async(lambda: outcomes.count("failed") >= 3, 30, "failures")
        assert poster.problem
        assert ledger.waiting().batches == 130
        async with serving(int(url.split(":")[2].split("/")[0])) as service:
            await emptied(ledger)
    assert [len(each) for each in service.sequences] == [60, 60, 10]
    assert service.sequences[0] == [*range(1, 60), 130]
    assert sorted(n for each in service.sequences for n in each) == list(range(1, 131))


@pytest.mark.parametrize("code", [500, 502, 503, 403, 401, 429, 426, 302, 404])
async def test_an_answer_that_may_change_is_waited_for(
    ledger: Backlog, token: Path, code: int
) -> None:
    async with serving() as service:
        service.codes = [code, code]
        poster = Poster(Target(service.url, token), ledger)
        ledger.add(batch())
        assert await poster.post(ledger.next(1, 1)) == "failed"
        assert poster.problem == f"{code}: as the test wants"
        async with running(poster):
            await emptied(ledger)
    assert service.sequences == [[1]]


@pytest.mark.parametrize("code", [400, 413, 415, 422])
async def test_the_one_batch_that_will_never_do_is_dropped_and_the_others_are_taken(
    ledger: Backlog, token: Path, code: int
) -> None:
    async with serving() as service:
        service.refuse = 3
        poster = Poster(Target(service.url, token), ledger)
        for _ in range(5):
            ledger.add(batch())
        async with running(poster):
            await emptied(ledger)
    assert sorted(n for each in service.sequences for n in each) == [1, 2, 4, 5]
    assert ledger.dropped == 1


@pytest.mark.parametrize("answer", ["no JSON", "[]", '{"resources": 7}', "{}"])
async def test_a_strange_answer_is_still_an_answer(
    ledger: Backlog, token: Path, answer: str
) -> None:
    async with serving() as service:
        service.answer = answer
        poster = Poster(Target(service.url, token), ledger)
        ledger.add(batch())
        assert await poster.post(ledger.next(1, 1)) == "taken"


async def test_a_token_that_is_missing_is_waited_for_and_said(
    ledger: Backlog, tmp_path: Path
) -> None:
    async with serving() as service:
        missing = tmp_path / "nowhere"
        poster = Poster(Target(service.url, missing), ledger)
        ledger.add(batch())
        assert await poster.post(ledger.next(1, 1)) == "failed"
        assert str(missing) in poster.problem
        assert "projected token" in poster.problem
        missing.write_text("here")
        assert await poster.post(ledger.next(1, 1)) == "taken"


async def test_the_service_is_checked_and_a_renewed_certificate_is_read(
    ledger: Backlog, token: Path, tmp_path: Path
) -> None:
    ca_file, context = certificate(tmp_path / "right")
    other, _ = certificate(tmp_path / "other")
    ledger.add(batch())
    waiting = ledger.next(1, 1)
    async with serving(tls=context) as service:
        trusted = tmp_path / "trusted.pem"
        trusted.write_bytes(other.read_bytes())
        poster = Poster(Target(service.url, token, trusted), ledger)
        assert await poster.post(waiting) == "failed"
        assert "certificate" in poster.problem.lower()
        assert service.tokens == [], "a token is for the service alone"
        trusted.write_bytes(ca_file.read_bytes())
        import os

        os.utime(trusted, (1, 1))
        assert await poster.post(waiting) == "taken"
        trusted.write_text("no certificate")
        assert await poster.post(waiting) == "failed"
        assert "--ca-file" in poster.problem
        trusted.unlink()
        assert await poster.post(waiting) == "failed"
        assert str(trusted) in poster.problem
        assert len(service.tokens) == 1, "a token is for the service alone"


@pytest.mark.parametrize(
    ("url", "plain", "right"),
    [
        ("https://service/hub/", False, True),
        ("http://service/hub/", True, True),
        ("http://service/hub/", False, False),
        ("service:8080", True, False),
        ("https://", True, False),
        ("ftp://service/", True, False),
    ],
)
def test_a_token_is_sent_to_an_address_with_tls_only(url: str, plain: bool, right: bool) -> None:
    target = Target(url, Path("token"))
    if right:
        assert checked(target, plain=plain) is target
    else:
        with pytest.raises(GPULeaseError) as refused:
            checked(target, plain=plain)
        assert refused.value.next_step
