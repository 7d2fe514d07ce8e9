"""Two projects share the GPUs of a running service: one borrows, the other takes its own back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gpulease.cli import main as command_line
from gpulease.errors import GPULeaseError
from gpulease.runs.submission import said
from gpulease.service.hubs.auth import SCOPE_REQUEST, SCOPE_RESERVE
from gpulease.store import usage
from tests.helpers import wait_for_async
from tests.service.kit import Site, active_lease

POLICY = """\
pools: {simulated-gpu: {evidence: process}}
classes: {gpu: {pool: simulated-gpu, price: 2}}
limits: {leases_per_user: 4}
time_outs: {warm_up: 0, warning: 0.2s, minimum_runtime: 0, idle: 1h, claim: 1h}
projects:
  phys: {group: cs101, pools: {simulated-gpu: {guarantee: 1}}, budget: {gpu_hours: 100, each: 40}}
  bio: {group: cs102, pools: {simulated-gpu: {guarantee: 1}}}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "first.yaml"
    file.write_text(POLICY, encoding="utf-8")
    return file


async def busy(site: Site, lease_id: str, supervisor: Any) -> None:
    """Run a cell there, and wait until the service knows of it."""
    await supervisor.live(use=1.0, cells=1)
    loop = site.service.services.loop

    def seen() -> bool:
        evidence = loop.snapshot().evidence.get(lease_id)
        return evidence is not None and evidence.verdict == "busy"

    await wait_for_async(seen, 30, "the use is seen")


async def test_who_submits_a_notebook_reads_what_is_left_of_the_budget(
    run: Any, policy: Path
) -> None:
    async with run(first_policy_file=policy) as site:

        async def submitted(user: str, **more: Any) -> Any:
            client = site.client(site.hub.page_token(user))
            return (await client.call("POST", "runs", {"notebook": "a.ipynb", **more}))["items"]

        (mine,) = await submitted("stu")
        assert mine["budget"]["whose"] == "person"
        assert (mine["budget"]["left"], mine["budget"]["of"]) == (40, 40)
        assert said([mine]).endswith(" 40 of 40 GPU-hours of its budget left.")
        (free,) = await submitted("eve")
        assert free["budget"] is None
        assert said([free]).endswith(f"{free['id']}.ipynb.")
        with pytest.raises(GPULeaseError, match="in no project 'phys'"):
            await submitted("eve", project="phys")


async def test_an_owner_takes_back_what_another_project_borrowed(run: Any, policy: Path) -> None:
    async with run(first_policy_file=policy) as site:
        site.hub.user("stu", "", "two", groups=("cs101",))
        first, *peers = await active_lease(site, "stu")
        second, *more = await active_lease(site, "stu", "two")
        assert (first["project"], second["project"]) == ("phys", "phys")
        by_lease = {first["id"]: peers[1], second["id"]: more[1]}
        for lease_id, supervisor in by_lease.items():
            await busy(site, lease_id, supervisor)

        owner = site.client(site.hub.server_token("eve"))
        wish = await owner.ask({"origin": "magic"})
        assert (wish["project"], wish["state"]) == ("bio", "queued")

        def told() -> Any:
            leases = site.service.services.ledger.leases
            return next((x for x in by_lease if leases[x].nominated_for == wish["id"]), None)

        victim = await wait_for_async(told, 30, "one of the two is told to leave")
        with pytest.raises(GPULeaseError) as refused:
            await site.client(site.hub.server_token("stu")).call(
                "POST", f"leases/{victim}/keep", {}
            )
        assert refused.value.reason in ("keep_not_possible", "not_possible_now")
        await by_lease[victim].next("drain")
        await by_lease[victim].say({"type": "drained", "result": "done"})
        ended = await site.lease(victim, "ended")
        assert ended.end_reason == "preempted"
        started = await site.lease(wish["id"], "starting")
        assert started.devices == ended.devices

        views = await owner.call("GET", "projects")
        (bio,) = views["items"]
        assert (bio["name"], bio["mine"], bio["budget"]) == ("bio", True, None)
        assert bio["pools"]["simulated-gpu"] == {
            "guarantee": 1, "limit": None, "held": 1, "waiting": 0, "share": 1,
        }  # fmt: skip
        (used,) = site.service.services.ledger.store.read(usage.part, ended.created, ended.ended)[0]
        assert (used.project, used.user, used.units, used.price) == ("phys", "stu", 1, 2.0)
        for peer in (*peers, *more):
            await peer.close()


async def test_use_and_what_is_left_are_shown_to_whom_they_concern(run: Any, policy: Path) -> None:
    async with run(first_policy_file=policy) as site:
        lease, channel, supervisor = await active_lease(site)
        ina = site.hub.token("ina", f"{SCOPE_REQUEST}!user=ina", f"{SCOPE_RESERVE}!group=cs101")
        student = site.client(site.hub.server_token("stu"))
        (phys,) = (await student.call("GET", "projects"))["items"]
        budget = phys["budget"]
        assert (budget["whose"], budget["of"], budget["at_zero"]) == ("person", 40, "end")
        assert "spent" not in phys
        for token, people in (
            (site.hub.server_token("stu"), ["stu"]),
            (site.hub.server_token("eve"), []),
            (ina, ["stu"]),
            (site.hub.admin_token(), ["stu"]),
        ):
            found = await site.client(token).call("GET", "usage?by=project,person,class")
            assert [row["person"] for row in found["items"]] == people
        (row,) = found["items"]
        assert (row["project"], row["class"]) == ("phys", "gpu")
        assert row["gpu_hours"] == pytest.approx(2 * row["hours"], abs=1e-3)
        led = (await site.client(ina).call("GET", "projects"))["items"]
        assert [(each["name"], list(each["spent"])) for each in led] == [("phys", ["stu"])]
        whole = led[0]["budget"]
        assert (whole["whose"], whole["of"]) == ("project", 100), "all of its people's"
        assert 90 < whole["left"] < 100
        with pytest.raises(GPULeaseError) as refused:
            await student.call("GET", "usage?by=shoe-size")
        assert refused.value.reason == "invalid_query"
        assert lease["project"] == "phys"
        assert lease["budget"] == budget | {"left": lease["budget"]["left"]}
        await channel.close()
        await supervisor.close()


async def test_an_ask_names_its_project_or_is_refused(run: Any, policy: Path) -> None:
    async with run(first_policy_file=policy) as site:
        client = site.client(site.hub.server_token("stu"))
        with pytest.raises(GPULeaseError) as refused:
            await client.ask({"project": "bio"})
        assert refused.value.reason == "unknown_project"
        assert (await client.ask({"project": "phys"}))["project"] == "phys"
        for project, number in (("phys", 1), ("bio", 0)):
            for state in ("", "live"):
                found = await client.call("GET", f"leases?state={state}&project={project}")
                assert found["total"] == number


async def test_what_was_spent_is_known_after_a_restart(run: Any, policy: Path) -> None:
    small = POLICY.replace("gpu_hours: 100, each: 40", "gpu_hours: 0.000001")
    async with run(first_policy_file=policy) as site:
        lease, channel, supervisor = await active_lease(site)
        await site.client(site.hub.page_token("stu")).end(lease["id"])
        await supervisor.next("drain")
        await supervisor.say({"type": "drained", "result": "done"})
        await site.lease(lease["id"], "ended")
        await channel.close()
        await supervisor.close()
        await site.service.services.policies.save(small, "root", None)
    async with run() as site:
        usage = site.service.services.usage
        spent = usage.spent(site.service.services.loop.clock())
        assert spent["phys", "stu"] > 0
        wish = await site.client(site.hub.server_token("stu")).ask({})
        queued = await site.lease(wish["id"], "queued")
        await wait_for_async(
            lambda: site.service.services.ledger.leases[queued.id].reason == "no_budget", 30, "why"
        )
        seen = await site.client(site.hub.server_token("stu")).call("GET", f"leases/{queued.id}")
        assert "Its next period begins on Mon " in seen["sentence"]
        assert "You are next" not in seen["sentence"], "it waits for no turn"


async def test_a_manager_of_a_group_sees_its_leases_and_may_end_them(
    run: Any, tmp_path: Path
) -> None:
    file = tmp_path / "first.yaml"
    file.write_text(
        POLICY + "reservations: {groups: {cs101: {managers: [tom]}}}\n", encoding="utf-8"
    )
    async with run(first_policy_file=file) as site:
        site.hub.user("tom", "", groups=("staff",))
        lease, channel, supervisor = await active_lease(site)
        for name, seen in (("tom", [lease["id"]]), ("eve", [])):
            client = site.client(site.hub.server_token(name))
            assert [each["id"] for each in await client.leases()] == seen
        await site.client(site.hub.server_token("tom")).end(lease["id"], "the lab is over")
        await supervisor.next("drain")
        assert (await site.lease(lease["id"], "draining")).end_note == "the lab is over"
        await channel.close()
        await supervisor.close()


async def test_the_command_line_prints_and_writes_it(
    run: Any, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    async with run(first_policy_file=policy) as site:
        _, channel, supervisor = await active_lease(site)
        monkeypatch.setenv("GPULEASE_TOKEN", site.hub.server_token("stu"))
        where, file = ["--url", site.url], tmp_path / "use.csv"
        for words in (
            ["projects", *where],
            ["usage", "--by", "project,class", *where],
            ["usage", "--by", "person", "--csv", str(file), *where],
        ):
            assert await asyncio.to_thread(command_line, words) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[0].split() == [
            "PROJECT", "POOL", "HELD", "GUARANTEE", "SHARE", "WAITING", "BUDGET", "LEFT",
        ]  # fmt: skip
        assert said[1].split()[:4] == ["phys", "simulated-gpu", "1", "1"]
        assert said[1].endswith("of 40")
        assert said[2].split() == ["project", "class", "hours", "gpu_hours", "estimated"]
        assert said[3].split()[:2] == ["phys", "gpu"]
        assert file.read_text().splitlines()[1].startswith("stu,")
        nowhere = str(tmp_path / "none" / "use.csv")
        assert await asyncio.to_thread(command_line, ["usage", "--csv", nowhere, *where]) == 2
        assert f"{nowhere} cannot be written: No such file" in capsys.readouterr().err
        assert await asyncio.to_thread(command_line, ["usage", "--by", "shoe", *where]) == 2
        assert capsys.readouterr().err == (
            "gpulease: by: it must be some of class, day, person, project, with commas.\n"
        )
        await channel.close()
        await supervisor.close()
