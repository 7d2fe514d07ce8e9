"""What people are told while a service runs: a real relay and a real web server receive it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
import yaml

from gpulease.service.run import RunningService
from tests.helpers import wait_for_async
from tests.service.kit import Site, active_lease, options
from tests.service.test_notify import WHY, Breaking, hook, relay
from tests.service.test_reservations import POLICY, prof, reserve_soon

#: One GPU-hour in 1000, which a lease of one GPU spends in a few seconds.
BUDGET = {"gpu_hours": 0.001, "contact": ["pi@x.org", "deputy@x.org"]}


@pytest.fixture
async def told(hub, tmp_path):
    """A service with three GPUs, of which one can be lost; with what was mailed and posted."""
    document = yaml.safe_load(POLICY)
    document["projects"] = {"phys": {"group": "phys", "budget": BUDGET}, "all": {"everyone": True}}
    first = tmp_path / "policy.yaml"
    first.write_text(yaml.safe_dump(document))
    mailed: list[Any] = []
    posted: list[Any] = []
    async with AsyncExitStack() as stack:
        smtp = await stack.enter_async_context(relay(mailed))
        webhook = await stack.enter_async_context(hook(posted))
        told_by = options(
            tmp_path, first_policy_file=first, smtp=smtp, mail_from="gpus@x.org", webhook=webhook
        )
        service = RunningService(told_by, Breaking(3))
        await service.open()
        stack.push_async_callback(service.close)
        yield Site(hub, service), mailed, posted


def kinds(mailed, posted):
    """Return what was mailed to whom, and what was posted."""
    subjects = sorted((each.to[0], str(each.message["Subject"])) for each in mailed)
    return subjects, [each["kind"] for each in posted]


async def test_a_lab_at_risk_and_its_cancellation_are_mailed_and_posted(told):
    site, mailed, posted = told
    made = await reserve_soon(site, 3600, contact=["prof@x.org", "aide@x.org"])
    site.service.services.provider._probe.broken = True
    await site.service.services.provider.inventory()
    watch = site.service.services.reservation_watch
    await wait_for_async(lambda: bool(watch.short()), 30, "fewer seats")
    await watch.look()
    await wait_for_async(lambda: len(mailed) == 2 and len(posted) == 1, 30, "that it is at risk")
    risk = "[gpulease] lab of cs101: fewer GPUs than reserved, or than people"
    assert kinds(mailed, posted) == ([("aide@x.org", risk), ("prof@x.org", risk)], ["short"])
    assert mailed[0].text == f"{posted[0]['sentence']}\n{posted[0]['next_step']}\n\n{WHY}\n"
    assert "2 of 3" in posted[0]["sentence"]
    # Less short, or as short again, is no news; shorter is.
    worse = replace(watch.short()[0], seats=1)
    for found in ([], [worse], watch.short(), [worse]):
        watch.short = found.copy
        await watch.look()
        del watch.short
    await wait_for_async(lambda: len(mailed) == 4 and len(posted) == 2, 30, "that it is worse")
    assert "1 of 3" in posted[1]["sentence"]
    # Who is to come there reads how many seats there are, not how many were reserved.
    seen = await prof(site).call("GET", f"reservations/{made['id']}")
    assert seen["sentence"].startswith("2 seats of ")

    await prof(site).call("DELETE", f"reservations/{made['id']}", {"note": "I am ill"})
    await wait_for_async(lambda: len(mailed) == 6 and len(posted) == 3, 30, "the cancellation")
    sentence = "prof cancelled the reservation lab of cs101: I am ill."
    assert posted[2] == {
        "kind": "cancelled", "group": "cs101", "name": "lab", "sentence": sentence,
        "next_step": "", "to": ["prof@x.org", "aide@x.org"],
    }  # fmt: skip
    assert {(each.sender, each.text) for each in mailed[4:]} == {
        ("gpus@x.org", f"{sentence}\n\n{WHY}\n")
    }
    assert sorted(each.to for each in mailed[4:]) == [["aide@x.org"], ["prof@x.org"]]
    # A repeat changes nothing, and tells nobody.
    await prof(site).call("DELETE", f"reservations/{made['id']}")
    assert len(posted) == 3


async def test_a_budget_of_which_four_fifths_are_spent_is_mailed_and_posted_once(told):
    site, mailed, posted = told
    site.hub.user("ann", "", groups=("phys",))
    _lease, channel, supervisor = await active_lease(site, "ann")
    await wait_for_async(lambda: len(mailed) == 2 and bool(posted), 30, "that it runs out")
    subject = "[gpulease] phys has spent most of its GPU-hours"
    assert kinds(mailed, posted) == (
        [("deputy@x.org", subject), ("pi@x.org", subject)], ["budget"],
    )  # fmt: skip
    assert posted[0]["sentence"].startswith("Project phys has spent 0.0")
    assert "of its 0.001 GPU-hours" in posted[0]["sentence"]
    spent = site.service.services.usage
    await spent.tell_due()
    assert len(posted) == 1
    for each in (channel, supervisor):
        await each.close()
