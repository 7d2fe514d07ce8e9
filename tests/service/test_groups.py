"""Groups, their members, and what is told to them."""

import argparse
from pathlib import Path

import pytest

from gpulease.commands.admin import _end as admin_end
from gpulease.errors import GPULeaseError
from tests.service.kit import Hub, Server, Site, running


@pytest.fixture
def people(hub: Hub) -> Hub:
    hub.users.clear()
    hub.user("ada", "", groups=("cs101",))
    hub.user("grace", groups=("cs101", "cs102"))
    hub.user("linus", groups=("cs102",))
    return hub


def teacher(site: Site, *groups: str):
    scopes = [f"custom:gpulease:reserve!group={group}" for group in groups]
    return site.client(site.hub.token("prof", *scopes))


async def refused(call) -> GPULeaseError:
    with pytest.raises(GPULeaseError) as caught:
        await call
    return caught.value


async def test_an_instructor_sees_their_own_groups_and_their_members(people: Hub, site: Site):
    prof = teacher(site, "cs101")
    assert (await prof.call("GET", "groups"))["items"] == [{"name": "cs101"}]
    found = await prof.call("GET", "groups/members?group=cs101")
    assert found == {"items": ["ada", "grace"]}
    error = await refused(prof.call("GET", "groups/members?group=cs102"))
    assert (error.reason, error.status) == ("not_your_group", 403)


async def test_an_instructor_ends_all_of_the_group_but_their_own(people: Hub, site: Site):
    people.user("prof", "", groups=("cs101",))
    leases = {}
    for name in ("prof", "ada", "grace", "linus"):
        leases[name] = await site.client(people.page_token(name)).ask({"server": ""})
    prof = teacher(site, "cs101")
    ended = await prof.end_group("cs101", "The lab is over.")
    assert sorted(each["user"] for each in ended) == ["ada", "grace"]
    for each in ended:
        seen = await site.client(people.page_token(each["user"])).lease(each["id"])
        assert (seen["id"], seen["state"]) == (leases[each["user"]]["id"], "ended")
        assert (seen["end"]["reason"], seen["end"]["note"]) == ("forced", "The lab is over.")
        history = await prof.call("GET", f"leases/{each['id']}/events")
        assert history["items"][-1]["who"] == "prof"
    for name in ("prof", "linus"):
        mine = await site.client(people.page_token(name)).lease(leases[name]["id"])
        assert mine["state"] != "ended"
    assert await prof.end_group("cs101", "Again.") == [], "a repeat ends nothing"
    assert len(await site.client(people.admin_token()).end_group("cs102", "Maintenance.")) == 1


async def test_the_command_says_whose_leases_it_ended(people: Hub, site: Site, capsys):
    await site.client(people.page_token("ada")).ask({"server": ""})
    asked = argparse.Namespace(lease=None, group="cs101", reason="The lab is over.")
    await admin_end(teacher(site, "cs101"), asked)
    assert ": ada: " in capsys.readouterr().out
    await admin_end(teacher(site, "cs101"), asked)
    assert "Nobody else of cs101 has a GPU" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("group", "note", "reason"),
    [("cs102", "Over.", "not_your_group"), ("cs101", " ", "invalid_body")],
)
async def test_nobody_ends_what_is_not_their_groups_or_without_a_reason(
    people: Hub, site: Site, group: str, note: str, reason: str
):
    await site.client(people.page_token("grace")).ask({"server": ""})
    prof = teacher(site, "cs101")
    assert (await refused(prof.end_group(group, note))).reason == reason
    student = site.client(people.page_token("grace"))
    assert (await refused(student.end_group("cs101", "Over."))).status == 403
    [lease] = await student.leases()
    assert lease["state"] != "ended"


async def test_an_admin_sees_every_group(people: Hub, site: Site):
    admin = site.client(site.hub.admin_token())
    assert [each["name"] for each in (await admin.call("GET", "groups"))["items"]] == [
        "cs101",
        "cs102",
    ]
    assert (await admin.call("GET", "groups/members?group=nobody"))["items"] == []


async def test_a_hub_that_does_not_answer_is_said(people: Hub, site: Site):
    prof = teacher(site, "cs101")
    await prof.call("GET", "groups")  # whose token it is is known now
    site.hub.down = True
    error = await refused(prof.call("GET", "groups/members?group=cs101"))
    assert (error.reason, error.status) == ("hub_unreachable", 502)


async def test_a_message_reaches_the_members_who_are_there_and_who_come_later(
    people: Hub, site: Site
):
    member = await Server.join(site, site.hub.page_token("ada"))
    other = await Server.join(site, site.hub.page_token("linus"))
    prof = teacher(site, "cs101")
    told = await prof.call(
        "POST", "messages", {"group": "cs101", "text": " Finish by 16:00. ", "seconds": 600}
    )
    assert (told["by"], told["text"]) == ("prof", "Finish by 16:00.")
    assert (await member.next("messages"))["messages"] == [told]
    assert (await other.next("messages"))["messages"] == []
    later = await Server.join(site, site.hub.page_token("grace"))
    assert later.of("snapshot")[0]["messages"] == [told]
    member.messages.clear()
    await prof.call("DELETE", f"messages/{told['id']}", {})
    assert (await member.next("messages"))["messages"] == []
    for each in (member, other, later):
        await each.close()


async def test_a_message_is_still_there_after_a_restart_and_a_withdrawn_one_is_not(
    people: Hub, tmp_path: Path
):
    async with running(people, tmp_path) as site:
        prof = teacher(site, "cs101")
        said = [
            await prof.call("POST", "messages", {"group": "cs101", "text": text, "seconds": 600})
            for text in ("Wrong.", "Finish by 16:00.")
        ]
        await prof.call("DELETE", f"messages/{said[0]['id']}", {})
    async with running(people, tmp_path) as site:
        member = await Server.join(site, site.hub.page_token("ada"))
        assert member.of("snapshot")[0]["messages"] == said[1:]
        await teacher(site, "cs101").call("DELETE", f"messages/{said[1]['id']}", {})
        assert (await member.next("messages"))["messages"] == []
        await member.close()


async def test_nobody_tells_whom_they_do_not_teach(people: Hub, site: Site):
    prof, admin = teacher(site, "cs101"), site.client(site.hub.admin_token())
    for group in ("cs102", ""):
        error = await refused(prof.call("POST", "messages", {"group": group, "text": "hello"}))
        assert (error.reason, error.status) == ("may_not_tell", 403)
    told = await admin.call("POST", "messages", {"text": "The hub is updated at 18:00."})
    assert told["group"] == ""
    error = await refused(prof.call("DELETE", f"messages/{told['id']}", {}))
    assert error.reason == "may_not_tell"


async def test_an_empty_message_is_refused(people: Hub, site: Site):
    error = await refused(
        teacher(site, "cs101").call("POST", "messages", {"group": "cs101", "text": " "})
    )
    assert error.status == 422


async def test_nobodys_messages_push_out_another_persons(site: Site, hub: Hub) -> None:
    admin = site.client(hub.admin_token())
    notice = await admin.call("POST", "messages", {"group": "", "text": "Maintenance at 18:00."})
    teacher = site.client(hub.token("prof", "custom:gpulease:reserve!group=cs101"))
    for number in range(12):
        await teacher.call("POST", "messages", {"group": "cs101", "text": f"{number}"})
    member = await Server.join(site, hub.page_token("stu"))
    shown = member.of("snapshot")[0]["messages"]
    assert [each["text"] for each in shown] == [notice["text"], *map(str, range(7, 12))]
    await member.close()
