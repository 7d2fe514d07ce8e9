"""A policy tried on the recorded days: figures, bounds, and who may ask."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gpulease import cli
from gpulease.client import ServiceClient
from gpulease.errors import GPULeaseError
from gpulease.service.control_loop import policies
from gpulease.simulate.whatif import THINK, answer, sentences
from tests.service.kit import Site, active_lease


def admin(site: Site) -> ServiceClient:
    return ServiceClient(site.url, site.hub.admin_token(), timeout=120)


async def refused(work) -> GPULeaseError:
    with pytest.raises(GPULeaseError) as found:
        await work
    return found.value


async def test_a_policy_is_tried_on_what_was_recorded(
    tmp_path: Path, run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with run(outs={"idle": 3600.0}) as site:
        _, channel, supervisor = await active_lease(site)
        text = (await admin(site).call("GET", "policy"))["text"]
        shorter = text.replace("idle: 1h", "idle: 7m", 1)
        found = await admin(site).call("POST", "whatif", {"text": shorter, "days": 1})
        assert (found["requests"], found["left_out"], found["complete"]) == (1, 0, True)
        assert found["now"]["sessions"] == found["then"]["sessions"] == 1
        assert found["now"]["waits"]["asked"] == 1
        assert any("7m" in change for change in found["changes"])
        assert "behave as they did" in found["assumption"]
        assert found["sensitivity"]["think"] == sorted(THINK)
        assert found["sentences"]
        curve = found["curve"]
        assert [each["idle"] for each in curve] == [900, 1800, 3600, 7200, 14400]
        saved = [each["saved_hours"] for each in curve]
        assert saved == sorted(saved, reverse=True)
        assert found["now"]["gpu"]["uuid"] == found["then"]["gpu"]["uuid"] != ""
        assert len(found["now"]["bins"]) == len(found["then"]["bins"])
        # Nothing of it came into force.
        assert (await admin(site).call("GET", "policy"))["version"] == 1
        # The same, typed.
        monkeypatch.setenv("GPULEASE_TOKEN", site.hub.admin_token())
        (tmp_path / "new.yaml").write_text(shorter)
        words = ["policy", "whatif", f"{tmp_path}/new.yaml", "--days", "1", "--url", site.url]
        assert await asyncio.to_thread(cli.main, words) == 0
        shown = capsys.readouterr().out
        assert "7m" in shown
        assert "behave as they did" in shown
        await channel.close()
        await supervisor.close()


async def test_without_history_there_is_nothing_to_say(site: Site) -> None:
    text = (await admin(site).call("GET", "policy"))["text"]
    error = await refused(admin(site).call("POST", "whatif", {"text": text}))
    assert (error.reason, error.status) == ("no_history", 409)


async def test_a_bad_text_is_refused_with_its_lines(site: Site) -> None:
    error = await refused(admin(site).call("POST", "whatif", {"text": "classes: 5"}))
    assert (error.reason, error.status) == ("bad_policy", 422)
    assert error.numbers["findings"]


async def test_days_have_bounds(site: Site) -> None:
    for days in [0, -1, 32, float("inf"), "week"]:
        error = await refused(admin(site).call("POST", "whatif", {"text": "", "days": days}))
        assert error.status in (400, 422)


async def test_only_admins_may_ask(site: Site) -> None:
    site.hub.user("ann")
    client = site.client(site.hub.page_token("ann"))
    error = await refused(client.call("POST", "whatif", {"text": ""}))
    assert (error.reason, error.status) == ("admins_only", 403)


async def test_it_is_bounded_in_time_and_one_at_a_time(run) -> None:
    async with run(outs={"idle": 3600.0}) as site:
        _, channel, supervisor = await active_lease(site)
        services = site.service.services
        text = services.policies.text.text
        slow = policies.WhatIf(
            services.ledger,
            services.policies,
            lambda: services.loop.observed_state.devices,
            services.workers,
            1e-3,
        )
        now = services.loop.clock()
        first = asyncio.create_task(slow.ask(text, 1, now))
        await asyncio.sleep(0)
        error = await refused(slow.ask(text, 1, now))
        assert (error.reason, error.status) == ("whatif_busy", 429)
        error = await refused(first)
        assert (error.reason, error.status) == ("whatif_too_long", 422)
        await channel.close()
        await supervisor.close()


def outcome(**changed):
    base = {
        "held_hours": 100.0,
        "busy_hours": 20.0,
        "reclaims": 10,
        "false_reclaims": 1,
        "reattaches": 5,
        "waits": {"p50": 5.0, "p95": 60.0},
    }
    return base | changed


def test_what_is_done_in_time_counts() -> None:
    def replayed(think: float, name: str, **changed):
        return {"think": think, "name": name, "outcome": outcome(**changed)}

    one = replayed(1.0, "now"), replayed(1.0, "then", held_hours=80.0)
    assert answer(one[:1]) is None
    found = answer([*one, replayed(0.5, "now")])
    assert found is not None
    assert (found["complete"], found["sensitivity"]["think"]) == (False, [1.0])
    rest = [replayed(0.5, "now"), replayed(0.5, "then", held_hours=95.0)]
    rest += [replayed(2.0, "now"), replayed(2.0, "then", held_hours=70.0)]
    found = answer([*one, *rest])
    assert found is not None
    assert found["complete"]
    assert found["sensitivity"]["differences"]["held_hours"] == {"least": -30.0, "most": -5.0}


def test_differences_are_said_in_words() -> None:
    same = sentences(outcome(), outcome())
    assert same == ["Nothing would have been different."]
    then = outcome(held_hours=75.0, reclaims=14, waits={"p50": 5.0, "p95": None})
    assert sentences(outcome(), then) == [
        "GPUs would have been held for 25.0 GPU-hours fewer (25%).",
        "19 of 20 of the waits end within 60 s now; then fewer would.",
        "14 GPUs would have been released as idle instead of 10.",
    ]


def test_waits_that_end_only_then_are_said() -> None:
    now = outcome(waits={"p50": 5.0, "p95": None})
    assert sentences(now, outcome()) == [
        "19 of 20 of the waits would end within 60 s; now fewer do."
    ]
