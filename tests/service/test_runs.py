"""Runs through the real service: who may, and a server at the hub for each, started and removed."""

import asyncio
from typing import Any

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy.model import EndReason, LeaseState
from gpulease.runs.model import Run
from gpulease.service.hubs.auth import SCOPE_RESERVE
from gpulease.service.runs import commands
from gpulease.store import TransitionRecord
from tests.helpers import wait_for_async
from tests.policy.build import active, at
from tests.service.kit import active_lease, running

SUBMIT = {"notebook": "train.ipynb"}


class Runner:
    """What a run's own notebook server says."""

    def __init__(self, site, run: dict[str, Any], boot: str = "b1") -> None:
        self._client = site.client(site.hub.server_token(run["user"], run["server"]))
        self._path, self._boot = f"runs/{run['id']}/reports", boot

    async def say(self, state: str = "running", **more: Any) -> Any:
        body = {"boot": self._boot, "state": state, **more}
        return await self._client.call("POST", self._path, body)


def stu(site):
    return site.client(site.hub.page_token("stu"))


async def submit(client, **changed):
    return (await client.call("POST", "runs", {**SUBMIT, **changed}))["items"]


async def until(client, run, state, seconds=30):
    async def there():
        found = await client.call("GET", f"runs/{run['id']}")
        return found if found["state"] == state else None

    return await wait_for_async(there, seconds, f"the run is {state}")


async def up(site, run):
    """Make the server that the hub was asked for ready."""
    await wait_for_async(
        lambda: run["server"] in site.hub.users[run["user"]]["servers"], 30, "a server"
    )
    site.hub.users[run["user"]]["servers"][run["server"]] |= {"ready": True, "pending": None}


async def refused(call):
    with pytest.raises(GPULeaseError) as caught:
        await call
    return caught.value


async def test_a_notebook_runs_in_a_server_of_its_own_that_is_removed_at_the_end(site):
    client = stu(site)
    (run,) = await submit(client, parameters={"n": 3}, gpu_class=None)
    assert run["result"] == f"train.run-{run['id']}.ipynb"
    await up(site, run)
    assert site.hub.started == [("stu", f"run-{run['id']}", {})]
    runner = Runner(site, run)
    assert (await runner.say(cells=4))["parameters"] == {"n": 3}
    assert (await runner.say(cells=4, done=1))["sentence"] == "1 of 4 cells are done."
    assert (await until(client, run, "running"))["attempt"] == 1
    await runner.say("succeeded", cells=4, done=4)
    assert (await until(client, run, "ended"))["outcome"] == "succeeded"
    await wait_for_async(lambda: site.hub.removed, 30, "its server removed")
    assert run["server"] not in site.hub.users["stu"]["servers"]
    events = (await client.call("GET", f"runs/{run['id']}/events"))["items"]
    assert [each["what"] for each in events] == ["submitted", "starting", "executing", "succeeded"]
    assert [each["sentence"] for each in events][::3] == ["Submitted.", "Finished."]


async def test_it_goes_on_after_the_persons_own_server_and_after_a_restarted_service(hub, tmp_path):
    async with running(hub, tmp_path) as site:
        (run,) = await submit(stu(site))
        await up(site, run)
        await Runner(site, run).say(cells=2)
        del hub.users["stu"]["servers"][""]
    async with running(hub, tmp_path) as site:
        assert (await Runner(site, run).say(cells=2, done=1))["attempt"] == 1
        await Runner(site, run).say("succeeded", cells=2, done=2)
        await wait_for_async(lambda: hub.removed, 30, "its server removed")
        assert len(hub.started) == 1


async def test_a_server_that_dies_is_started_again_and_the_notebook_begins_anew(site):
    client = stu(site)
    (run,) = await submit(client)
    await up(site, run)
    await Runner(site, run).say(cells=2, done=1)
    del site.hub.users["stu"]["servers"][run["server"]]
    waiting = await until(client, run, "waiting")
    assert waiting["sentence"] == "It will be tried again: its notebook server ended."
    late = await refused(Runner(site, run).say("succeeded"))
    assert late.reason in ("not_possible_now", "no_server")


async def test_a_cancelled_run_is_over_and_its_server_goes(site):
    client = stu(site)
    (run,) = await submit(client)
    await up(site, run)
    runner = Runner(site, run)
    await runner.say(cells=2)
    over = await client.call("DELETE", f"runs/{run['id']}", {})
    assert (over["state"], over["outcome"]) == ("ended", "cancelled")
    assert (await client.call("DELETE", f"runs/{run['id']}", {}))["ended"] == over["ended"]
    assert (await refused(runner.say(done=1))).reason in ("not_possible_now", "no_server")
    await wait_for_async(lambda: site.hub.removed, 30, "its server removed")


async def test_a_run_whose_gpu_an_admin_ends_is_cancelled_and_says_so(site):
    """It would ask again at once; a repeat for a lease that is over long since changes nothing."""
    client, admin = stu(site), site.client(site.hub.admin_token())
    (run,) = await submit(client)
    await up(site, run)
    runner = Runner(site, run)
    await runner.say(cells=2)
    server = site.client(site.hub.server_token("stu", run["server"]))
    ina = site.client(site.hub.token("ina", f"{SCOPE_RESERVE}!group=cs101"))
    first = await server.ask()
    await ina.end(first["id"], "For the lab.")
    second = await server.ask()
    await admin.end(first["id"], "Again.")
    assert (await client.call("GET", f"runs/{run['id']}"))["state"] == "running"
    await admin.end(second["id"], "The cards are needed.")
    over = await client.call("GET", f"runs/{run['id']}")
    assert (over["state"], over["outcome"]) == ("ended", "cancelled")
    assert over["sentence"] == "An admin cancelled it. The cards are needed."
    *_, last = (await client.call("GET", f"runs/{run['id']}/events"))["items"]
    assert (last["what"], last["note"]) == ("admin_cancelled", "The cards are needed.")
    await wait_for_async(lambda: site.hub.removed, 30, "its server removed")


async def test_its_log_says_when_it_had_a_gpu_and_why_that_left(site):
    client = stu(site)
    ina = site.hub.token("ina", f"{SCOPE_RESERVE}!group=cs101")
    (run,) = await submit(client)
    await up(site, run)
    runner = Runner(site, run)
    await runner.say(cells=2)

    async def has_gpu():
        lease, channel, supervisor = await active_lease(site, server=run["server"])
        ending = asyncio.ensure_future(site.client(ina).end(lease["id"], "It is needed."))
        await supervisor.next("drain")
        await supervisor.say({"type": "drained", "result": "done"})
        await ending
        await site.lease(lease["id"], "ended")
        await channel.close()

    await has_gpu()
    await has_gpu()
    await runner.say("succeeded", cells=2, done=2)
    events = (await client.call("GET", f"runs/{run['id']}/events"))["items"]
    assert [each["what"] for each in events] == [
        "submitted", "starting", "executing", "gpu", "gpu_left", "gpu", "gpu_left", "succeeded"
    ]  # fmt: skip
    assert (events[3]["sentence"], events[4]["sentence"]) == (
        "GPU assigned.",
        "Its GPU was released.",
    )
    assert "ended" in events[4]["note"]
    assert "They wrote: It is needed." in events[4]["note"]


async def test_how_a_run_stands_with_its_gpu_speaks_to_its_own_person_only(site):
    client, admin = stu(site), site.client(site.hub.admin_token())
    (run,) = await submit(client)
    await up(site, run)
    await Runner(site, run).say(cells=2)
    _, channel, _ = await active_lease(site, server=run["server"])
    assert (await client.call("GET", f"runs/{run['id']}"))["gpu"] == "The GPU is ready."
    theirs = (await admin.call("GET", f"runs/{run['id']}"))["gpu"]
    assert theirs == "The process on the GPU is there."
    await channel.close()


def told_of(lease, moves, end=""):
    """Return what a run's log says of a lease that had these transitions, a second apart."""
    history = [
        TransitionRecord(lease.id, n, at(n), "x", why, source, target, 1, "")
        for n, (why, source, target) in enumerate(moves)
    ]
    run = Run(id="r1", user="stu", notebook="a.ipynb", created=at(0))
    return commands.gpu_rows(run, lease, history, end)


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ([("preempted", "active", "warned"), ("returned", "warned", "draining")], "with priority"),
        ([("idle", "active", "warned"), ("used", "warned", "active"),
          ("returned", "active", "draining")], ""),
        ([("returned", "active", "draining")], ""),
    ],
)  # fmt: skip
def test_a_run_that_handed_its_gpu_back_says_for_what_it_was_warned(moves, said):
    lease = active(1, state=LeaseState.ENDED, end_reason=EndReason.RETURNED, ended=at(60))
    came, left = told_of(lease, moves, "You released the GPU.")
    assert (came.what, left.what, left.at) == ("gpu", "gpu_left", at(60))
    assert said in left.note if said else left.note == ""


def test_a_run_that_goes_on_with_fewer_gpus_says_when_and_why():
    lease = active(1)
    moves = [
        ("preempted_in_part", "active", "warned"), ("preempted_in_part", "warned", "draining"),
        ("reshaped", "draining", "queued"), ("starting", "queued", "starting"),
    ]  # fmt: skip
    came, changed = told_of(lease, moves)
    assert (came.what, changed.what, changed.at) == ("gpu", "gpu_changed", at(2))
    assert changed.note == "Somebody with priority needed some of its GPUs."


async def test_only_their_own_runs_are_there_for_people(site):
    (run,) = await submit(stu(site))
    eve = site.client(site.hub.page_token("eve"))
    for call in (
        eve.call("GET", f"runs/{run['id']}"),
        eve.call("DELETE", f"runs/{run['id']}", {}),
        eve.call("GET", f"runs/{run['id']}/events"),
        submit(eve, after=[run["id"]]),
        Runner(site, {**run, "user": "eve"}).say(),  # a server that eve gave the run's name
    ):
        assert (await refused(call)).status in (403, 404)
    assert (await eve.call("GET", "runs"))["total"] == 0
    admin = site.client(site.hub.admin_token())
    assert (await admin.call("GET", "runs"))["total"] == 1
    assert (await admin.call("GET", "runs?mine=1"))["total"] == 0


async def test_a_server_reports_of_its_own_run_only(site):
    client = stu(site)
    first, second = (await submit(client))[0], (await submit(client))[0]
    await up(site, first)
    await up(site, second)
    other = Runner(site, {**second, "server": first["server"]})
    assert (await refused(other.say())).reason == "not_yours"


async def test_an_array_is_a_run_for_each_number_and_others_may_follow_all_of_them(site):
    client = stu(site)
    runs = await submit(client, array="1-3")
    assert [each["index"] for each in runs] == [1, 2, 3]
    assert len({each["array"] for each in runs}) == 1
    (last,) = await submit(client, after=[runs[0]["array"]])
    assert last["after"] == [each["id"] for each in runs]
    await up(site, runs[0])
    await up(site, runs[1])
    assert (await until(client, runs[2], "waiting"))["reason"] in ("", "run_limit")


async def test_what_follows_an_array_follows_those_of_it_that_have_ended_too(site):
    client = stu(site)
    good, bad = await submit(client, array="1-2")
    for run, end in ((good, "succeeded"), (bad, "notebook_error")):
        await up(site, run)
        await Runner(site, run).say(cells=1)
        await Runner(site, run).say(end, cells=1)
        await until(client, run, "ended")
    await wait_for_async(lambda: len(site.hub.removed) == 2, 30, "their servers removed")
    (last,) = await submit(client, after=[good["array"]])
    assert last["after"] == [good["id"], bad["id"]]
    assert (await until(client, last, "ended"))["outcome"] == "skipped"
    eve = site.client(site.hub.page_token("eve"))
    assert (await refused(submit(eve, after=[good["array"]]))).reason == "no_such_run"


async def test_a_repeated_submission_is_the_same_one(site):
    client = stu(site)
    headers = {"Idempotency-Key": "k1"}
    first = await client.call("POST", "runs", {**SUBMIT, "array": "1-2"}, headers=headers)
    again = await client.call("POST", "runs", {**SUBMIT, "array": "1-2"}, headers=headers)
    assert [each["id"] for each in first["items"]] == [each["id"] for each in again["items"]]
    for other in ({"array": "1-3"}, {"array": "1"}, {}, {"notebook": "b.ipynb", "array": "1-2"}):
        error = await refused(client.call("POST", "runs", {**SUBMIT, **other}, headers=headers))
        assert (error.reason, error.status) == ("key_reused", 422)
    assert (await client.call("GET", "runs"))["total"] == 2


NEVER = [
    ({"notebook": "train.py"}, "invalid_body"),
    ({"gpu_class": "h200"}, "unknown_class"),
    ({"count": 9}, "bad_count"),
    ({"nodes": 9}, "bad_count"),
    ({"count": 1, "nodes": 2}, "bad_nodes"),
    ({"count": 2, "min_count": 3}, "bad_count"),
    ({"count": 2, "nodes": 2, "min_count": 1}, "bad_count"),
    ({"at_least": 40}, "bad_count"),
    ({"at_least": 101}, "invalid_body"),
    ({"array": "4-1"}, "bad_array"),
    ({"parameters": {"for": 1}}, "bad_parameter"),
    ({"parameters": {"x": [1]}}, "invalid_body"),
    ({"after": ["000000000000"]}, "no_such_run"),
]


async def test_what_could_never_run_is_refused_at_once(site):
    for changed, reason in NEVER:
        assert (await refused(submit(stu(site), **changed))).reason == reason
        assert (await stu(site).call("GET", "runs"))["total"] == 0


async def test_one_person_may_have_so_many(site, monkeypatch):
    monkeypatch.setattr(commands, "MOST", 5)
    client = stu(site)
    await submit(client, array="1-4")
    assert (await refused(submit(client, array="1-2"))).reason == "too_many_runs"


async def test_without_the_scope_a_submission_is_refused_and_says_what_is_missing(site):
    site.hub.service_scopes = ("read:servers",)
    error = await refused(submit(stu(site)))
    assert error.reason == "runs_not_set_up"
    assert "whole_notebooks=True" in error.next_step


async def test_a_hub_without_named_servers_ends_the_run_and_says_so(site):
    site.hub.refuses_servers = (400, "Named servers are not enabled.")
    client = stu(site)
    (run,) = await submit(client)
    over = await until(client, run, "ended")
    assert (over["outcome"], over["reason"]) == ("failed", "not_set_up")
    assert "Named servers are not enabled." in over["sentence"]


async def test_a_hub_that_refuses_for_now_is_asked_again_later(site):
    site.hub.refuses_servers = (400, "User stu already has the maximum of 1 named servers.")
    client = stu(site)
    (run,) = await submit(client)

    async def refused_once():
        return (await client.call("GET", f"runs/{run['id']}"))["reason"] == "server_failed"

    await wait_for_async(refused_once, 30, "a refusal")
    assert (await client.call("GET", f"runs/{run['id']}"))["state"] == "waiting"
