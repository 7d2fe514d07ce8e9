"""The policy: read, checked with line numbers, saved as a version, in force at once, or pinned."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulease.client import ServiceClient
from gpulease.errors import GPULeaseError
from gpulease.policy import document
from gpulease.policy.calendar.reservation import GroupTerms
from gpulease.service.control_loop.policies import Policies
from tests.helpers import wait_for_async
from tests.service.kit import Site, active_lease, connect

BAD = "pools:\n  cards: {}\nclasses:\n  toy: {pool: cord}\ntime_outs: {idle: soon}\n"


def admin(site: Site) -> ServiceClient:
    return site.client(site.hub.admin_token())


async def refused(work) -> GPULeaseError:
    with pytest.raises(GPULeaseError) as found:
        await work
    return found.value


async def test_the_first_version_offers_what_was_found(site: Site) -> None:
    policy = await admin(site).call("GET", "policy")
    assert (policy["version"], policy["pinned"], policy["author"]) == (1, False, "gpulease")
    assert "simulated-gpu" in policy["text"]


async def test_a_bad_text_is_refused_with_its_lines(site: Site) -> None:
    found = await admin(site).call("POST", "policy/check", {"text": BAD})
    assert found["valid"] is False
    assert [each["line"] for each in found["findings"]] == [4, 5]
    assert all(each["sentence"] and each["level"] == "error" for each in found["findings"])
    error = await refused(admin(site).call("PUT", "policy", {"text": BAD}))
    assert (error.reason, error.status) == ("bad_policy", 422)
    assert [each["line"] for each in error.numbers["findings"]] == [4, 5]
    assert (await admin(site).call("GET", "policy"))["version"] == 1


async def test_a_check_says_what_saving_would_change(site: Site) -> None:
    before = (await admin(site).call("GET", "policy"))["text"]
    text = before.replace("idle: 1h", "idle: 7m", 1)
    assert text != before
    found = await admin(site).call("POST", "policy/check", {"text": text})
    assert found["valid"] is True
    assert any("7m" in change for change in found["changes"])
    assert found["effects"] == ["Everybody: an idle GPU gets its warning after 7 min, not 1 h."]
    same = await admin(site).call("POST", "policy/check", {"text": before})
    assert same["changes"] == []


async def test_a_saved_version_counts_at_once_for_running_leases(run) -> None:
    async with run(outs={"idle": 3600.0, "quiet": 3600.0, "claim": 0.1}) as site:
        lease, channel, supervisor = await active_lease(site)
        await connect(site, site.hub.server_token("stu"), lease["id"])
        await supervisor.live()
        policy = await admin(site).call("GET", "policy")
        changed = policy["text"].replace("idle: 1h", "idle: 0.1s", 1)
        assert changed != policy["text"]
        saved = await admin(site).call("PUT", "policy", {"text": changed, "base_version": 1})
        assert (saved["version"], saved["author"]) == (2, "root")

        async def warned() -> bool:
            await supervisor.live()
            return bool(supervisor.of("warn"))

        await wait_for_async(warned, 30, "a warning under the new policy")
        await channel.close()
        await supervisor.close()


async def test_versions_are_kept_and_can_be_read(site: Site) -> None:
    client = admin(site)
    first = await client.call("GET", "policy")
    second = first["text"] + "\n# a remark\n"
    await client.call("PUT", "policy", {"text": second})
    versions = await client.call("GET", "policy/versions?limit=1")
    assert versions["total"] == 2
    assert [each["version"] for each in versions["items"]] == [2]
    versions = await client.call("GET", "policy/versions?offset=1&limit=5")
    assert [each["version"] for each in versions["items"]] == [1]
    assert (await client.call("GET", "policy/versions/1"))["text"] == first["text"]
    assert (await client.call("GET", "policy/versions/2"))["text"] == second
    error = await refused(client.call("GET", "policy/versions/9"))
    assert (error.reason, error.status) == ("no_such_version", 404)


async def test_two_admins_do_not_overwrite_each_other(site: Site) -> None:
    client = admin(site)
    text = (await client.call("GET", "policy"))["text"]
    await client.call("PUT", "policy", {"text": text + "\n# one\n", "base_version": 1})
    error = await refused(client.call("PUT", "policy", {"text": text, "base_version": 1}))
    assert (error.reason, error.status) == ("policy_changed", 409)


RULES = """\
# told by chancellor@example.org
pools: {simulated-gpu: {}}
classes:
  gpu: {pool: simulated-gpu, title: Toy, pod: {kind: device_plugin, resource: nvidia.com/secret}}
time_outs: {idle: 7m}
reservations:
  groups: {cs101: {windows: 3, managers: [tutor]}, cs102: {managers: [other]}}
projects:
  science: {}
  cs101: {parent: science, people: {stu: {weight: 2}, rival: {weight: 9}},
          budget: {gpu_hours: 5, people: {rival: 3}, contact: [pi@example.org]}}
  hidden: {parent: science, budget: {gpu_hours: 1, contact: [boss@example.org]}}
drained_nodes: [cellar-3]
"""


async def test_students_read_what_of_the_policy_concerns_them_and_nothing_more(site: Site) -> None:
    await admin(site).call("PUT", "policy", {"text": RULES})
    assert (await admin(site).call("GET", "policy"))["text"] == RULES
    site.hub.user("stu", "", groups=("cs101",))
    client = site.client(site.hub.page_token("stu"))
    seen = await client.call("GET", "policy")
    text, own = seen["text"], document.parse(seen["text"])
    assert (seen["version"], seen["author"]) == (2, "")
    assert own.classes[0].title == "Toy"
    assert own.time_outs.idle == 420
    assert [each.name for each in own.projects.all] == ["science", "cs101"]
    assert own.projects.by_name["cs101"].budget.gpu_hours == 5
    assert [user for user, _ in own.projects.by_name["cs101"].people] == ["stu"]
    assert own.reservations.groups == (("cs101", GroupTerms(windows=3)),)
    for hidden in ("example.org", "rival", "tutor", "other", "hidden", "cellar", "secret"):
        assert hidden not in text
    prof = site.client(site.hub.token("prof", "custom:gpulease:reserve!group=cs101"))
    taught = (await prof.call("GET", "policy"))["text"]
    assert "rival" in taught
    assert "tutor" in taught
    assert not {"hidden", "example.org"} & set(taught.split())
    text = RULES
    for method, path, body in (
        ("PUT", "policy", {"text": text}),
        ("POST", "policy/check", {"text": text}),
        ("GET", "policy/versions", None),
        ("GET", "policy/versions/1", None),
    ):
        assert (await refused(client.call(method, path, body))).reason == "admins_only"


async def test_a_pinned_file_is_in_force_and_never_saved_to(run, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("pools: {simulated-gpu: {}}\nclasses: {toy: {pool: simulated-gpu}}\n")
    async with run(policy_file=file) as site:
        client = admin(site)
        policy = await client.call("GET", "policy")
        assert policy["pinned"] is True
        assert [each["name"] for each in await client.classes()] == ["toy"]
        assert (await refused(client.call("PUT", "policy", policy_body(policy)))).reason == (
            "policy_pinned"
        )
        assert (await client.call("GET", "policy/versions"))["total"] == 1


def policy_body(policy: dict) -> dict:
    return {"text": policy["text"]}


async def test_a_pinned_file_is_followed_and_a_bad_one_changes_nothing(run, tmp_path: Path) -> None:
    good = "pools: {simulated-gpu: {}}\nclasses: {%s: {pool: simulated-gpu}}\n"
    file = tmp_path / "policy.yaml"
    file.write_text(good % "toy")
    async with run(policy_file=file) as site:
        policies = site.service.services.policies

        async def found(*, looks: int = 2) -> tuple[list[str], str]:
            for _ in range(looks):
                await policies.look()
            alerts = (await admin(site).call("GET", "alerts"))["items"]
            said = " ".join(each["sentence"] for each in alerts)
            return [each.name for each in policies.current.classes], said

        # The service itself looks as well, so a look of its own may lie between two of these.
        file.write_text(good % "big")
        assert await found() == (["big"], "")
        file.write_text(BAD)
        classes, alarm = await found()
        assert classes == ["big"]
        assert "Line 4" in alarm
        assert 'gpulease_alerts{reason="policy_file"} 1.0' in await shown(site)
        file.unlink()
        classes, alarm = await found()
        assert classes == ["big"]
        assert "cannot be read" in alarm
        file.write_text(good % "small")
        assert await found() == (["small"], "")
        versions = await admin(site).call("GET", "policy/versions")
        assert [(x["version"], x["author"]) for x in versions["items"]] == [
            (3, file.name), (2, file.name), (1, file.name)
        ]  # fmt: skip
        file.write_text(BAD)
    # A service that starts beside a bad file goes on with what was in force.
    async with run(policy_file=file) as site:
        policies = site.service.services.policies
        assert [each.name for each in policies.current.classes] == ["small"]
        assert "Line 4" in policies.problem
    file.unlink()
    async with run(policy_file=file) as site:
        policies = site.service.services.policies
        assert [each.name for each in policies.current.classes] == ["small"]
        assert "is not used. It cannot be read: No such file" in policies.problem


async def test_a_pinned_file_that_was_never_there_does_not_start(run, tmp_path: Path) -> None:
    with pytest.raises(
        GPULeaseError, match=r"policy_file is .*no-such\.yaml.*No such file"
    ) as wrong:
        async with run(policy_file=tmp_path / "no-such.yaml"):
            pass
    assert (wrong.value.reason, wrong.value.numbers) == ("bad_option", {"option": "policy_file"})


async def test_a_class_of_a_pool_that_is_not_there_is_said(run, tmp_path: Path) -> None:
    """The documentation's own example on one machine: nobody would ever get a GPU."""
    file = tmp_path / "policy.yaml"
    file.write_text("pools: {cards: {}}\nclasses: {toy: {pool: cards}}\n")
    async with run(policy_file=file, gpus=2) as site:

        async def alarm() -> list[str]:
            found = (await admin(site).call("GET", "alerts"))["items"]
            return [each["sentence"] for each in found]

        (said,) = await wait_for_async(alarm, 30, "the alert")
        assert "pool cards" in said
        assert "pool simulated-gpu, where there are 2 GPUs" in said


async def test_a_pinned_file_is_not_taken_while_it_is_written(run, tmp_path: Path) -> None:
    whole = "pools: {simulated-gpu: {}}\nclasses: {a: {pool: simulated-gpu}}\n"
    file = tmp_path / "policy.yaml"
    file.write_text(whole)
    async with run(policy_file=file) as site:
        policies = Policies(site.service.services.ledger, lambda: None, file)
        await policies.open(())
        await policies.look()
        file.write_text(whole.replace("gpu}}\n", "gpu}, b: {pool: simulated-gpu}}\n"))
        await policies.look()
        assert [each.name for each in policies.current.classes] == ["a"], (
            "seen once, it may be growing"
        )
        await policies.look()
        assert [each.name for each in policies.current.classes] == ["a", "b"]


async def test_a_pinned_file_that_is_not_valid_is_read_again_when_it_changed(
    run, tmp_path: Path, monkeypatch
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("pools: {simulated-gpu: {}}\nclasses: {a: {pool: simulated-gpu}}\n")
    async with run(policy_file=file) as site:
        policies = Policies(site.service.services.ledger, lambda: None, file)
        await policies.open(())
        tried: list[str] = []
        put = policies._put

        def noted(text: str, author: str):
            tried.append(text)
            return put(text, author)

        monkeypatch.setattr(policies, "_put", noted)
        file.write_text(BAD)
        for _ in range(5):
            await policies.look()
        assert tried == [BAD]
        file.rename(tmp_path / "away")
        await policies.look()
        assert "cannot be read" in policies.problem
        (tmp_path / "away").rename(file)
        for _ in range(3):
            await policies.look()
        assert "Line 4" in policies.problem, "what is wrong now, not what was"
        assert tried == [BAD, BAD]


async def shown(site: Site) -> str:
    async def alarm() -> str:
        site.service.services.loop.wake()
        text = site.service.services.metrics.text().decode()
        return text if "policy_file" in text else ""

    return await wait_for_async(alarm, 30, "the alarm among the figures")


async def test_a_pinned_file_that_is_bad_from_the_beginning_does_not_start(
    run, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(BAD)
    with pytest.raises(GPULeaseError) as wrong:
        async with run(policy_file=file):
            pass
    assert wrong.value.reason == "bad_policy"


async def test_a_first_policy_comes_from_a_file(run, tmp_path: Path) -> None:
    file = tmp_path / "first.yaml"
    file.write_text("pools: {simulated-gpu: {}}\nclasses: {toy: {pool: simulated-gpu}}\n")
    async with run(first_policy_file=file) as site:
        assert [each["name"] for each in await admin(site).classes()] == ["toy"]
        assert (await admin(site).call("GET", "policy"))["pinned"] is False


async def test_a_bad_first_policy_does_not_start(run, tmp_path: Path) -> None:
    file = tmp_path / "first.yaml"
    file.write_text(BAD)
    with pytest.raises(GPULeaseError) as wrong:
        async with run(first_policy_file=file):
            pass
    assert wrong.value.reason == "bad_policy"


async def test_time_outs_are_previewed_before_they_are_saved(run) -> None:
    async with run(outs={"idle": 3600.0, "quiet": 3600.0, "claim": 0.1}) as site:
        lease, _, supervisor = await active_lease(site)
        await connect(site, site.hub.server_token("stu"), lease["id"])
        await supervisor.live()
        shown = await admin(site).call("GET", "policy/time-outs")
        fields = {each["name"]: each for each in shown["items"]}
        assert (fields["idle"]["value"], fields["idle"]["default"]) == (3600.0, 300.0)
        assert (fields["keeps"]["counted"], fields["idle"]["why"] != "") == (True, True)

        async def previewed(**values):
            return await admin(site).call("POST", "policy/time-outs", {"values": values})

        async def one_would_be_warned():
            return (await previewed(idle="1s"))["warned"] == 1

        await wait_for_async(one_would_be_warned, 30, "an idle lease to be warned", every=0.3)
        assert (await previewed(idle="2h"))["warned"] == 0
        found = await previewed(idle="1s")
        assert (found["valid"], found["changes"]) == (True, ["set idle from 1h to 1s"])
        assert (await admin(site).call("GET", "policy"))["version"] == 1, "nothing is saved"
        bad = await previewed(idle="900d")
        assert not bad["valid"]
        assert "7 days" in bad["findings"][0]["sentence"]
        saved = await admin(site).call("PUT", "policy", {"text": found["text"], "base_version": 1})
        assert saved["version"] == 2
        assert not (await previewed(idel="1s"))["valid"]
