"""A notebook that does not fit a class's image is told so before it waits for a GPU."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.reservation import GroupTerms, ReservationTerms
from gpulease.protocol.asks import Environment
from gpulease.service.hubs.auth import Asker, asker_of
from gpulease.service.leases.servers import REMEMBERED, Environments, Report, differences
from gpulease.sides.versions import environment
from tests import another_python
from tests.policy.build import at, snapshot
from tests.policy.reservations.build import window
from tests.service.kit import Site, active_lease

IMAGE = "registry.test/course:1"
NOW = datetime(2026, 3, 2, tzinfo=UTC)
CONDA = "/opt/conda/bin/python"


def runs(python: str, executable: str = CONDA, **packages: str) -> Environment:
    return {"python": python, "executable": executable, "packages": packages}


def report(user: str, python: str, executable: str = CONDA, **packages: str) -> Report:
    return Report(user, NOW, runs(python, executable, **packages))


def said(notebook: Environment, *reports: Report) -> list[str]:
    return differences("stu", "a100", notebook, reports)


def test_nothing_is_said_of_an_image_that_nobody_has_seen() -> None:
    assert said(runs("3.11.7", numpy="2.1")) == []


def test_packages_that_differ_or_lack_are_said() -> None:
    here = runs("3.11.7", numpy="2.1", torch="2.5", tqdm="4")
    there = report("ada", "3.11.2", numpy="2.1", torch="2.6")
    assert said(here, there) == [
        "torch is 2.5 here and 2.6 on the GPU.",
        "tqdm 4 is not installed on the GPU.",
    ]


@pytest.mark.parametrize(
    "reports",
    [
        (report("stu", "3.12.1"),),
        (report("ada", "3.12.1"), report("bob", "3.12.2")),
    ],
    ids=["the person's own lease said so", "two others said so"],
)
def test_another_python_is_refused_with_what_to_do(reports: tuple[Report, ...]) -> None:
    with pytest.raises(GPULeaseError) as refused:
        said(runs("3.11.7"), *reports)
    assert refused.value.reason == "python_mismatch"
    assert "Python 3.11.7" in refused.value.sentence
    assert "Python 3.12" in refused.value.next_step
    assert "another class than a100" in refused.value.next_step


@pytest.mark.parametrize(
    "reports",
    [
        (report("ada", "3.12.1"),),
        (report("ada", "3.11.1"), report("bob", "3.12.1"), report("eve", "3.12.1")),
        (report("stu", "3.12.1", "/usr/bin/python3"),),
    ],
    ids=["one other alone", "somebody says the contrary", "the interpreter may be there, too"],
)
def test_what_is_not_certain_warns_and_refuses_nobody(reports: tuple[Report, ...]) -> None:
    (warning,) = said(runs("3.11.7"), *reports)
    assert "may not run there" in warning
    assert "Python 3.12" in warning


def stu() -> Asker:
    return asker_of({"name": "stu", "kind": "user"})


@pytest.fixture
def imaged(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site whose class has an image of its own, as on a cluster."""
    monkeypatch.setattr(site.service.services.environments, "image", lambda *_: IMAGE)
    return site


async def test_the_first_lease_tells_the_next_ask(imaged: Site) -> None:
    """The refused one waits for nothing, and no device is held for it."""
    site = imaged
    token = site.hub.server_token("stu")
    lease, server, supervisor = await first_lease(site, "3.12.1", numpy="2.2")
    with pytest.raises(GPULeaseError, match=r"Python 3\.11\.7") as refused:
        await site.client(token).ask({"environment": runs("3.11.7")})
    assert refused.value.status == 409
    same = await site.client(token).ask({"environment": runs("3.12.9", numpy="2.1")})
    assert same["id"] == lease["id"]
    assert same["differences"] == ["numpy is 2.1 here and 2.2 on the GPU."]
    assert "differences" not in await site.client(token).ask({})
    for peer in (supervisor, server):
        await peer.close()


@another_python.needed
@pytest.mark.timeout(600)  # its tree may have to be copied first
async def test_two_real_pythons_are_told_apart_before_anybody_waits(imaged: Site) -> None:
    say = (
        "from gpulease.sides.versions import environment as e; import json; print(json.dumps(e()))"
    )
    asked = await asyncio.create_subprocess_exec(
        *another_python.command("-c", say), stdout=asyncio.subprocess.PIPE
    )
    there = json.loads((await asked.communicate())[0].splitlines()[-1])
    here = environment()
    image = {**there, "executable": here["executable"]}  # one path in both images
    lease, server, supervisor = await active_lease(imaged, hello=image)
    client = imaged.client(imaged.hub.server_token("stu"))
    with pytest.raises(GPULeaseError) as refused:
        await client.ask({"environment": here})
    assert refused.value.reason == "python_mismatch"
    assert f"Use a server image or a kernel with Python {another_python.VERSION}" in str(
        refused.value.next_step
    )
    assert (await client.ask({"environment": image}))["id"] == lease["id"]
    for peer in (supervisor, server):
        await peer.close()


async def test_an_image_is_forgotten_after_a_day_for_its_name_may_mean_another(
    imaged: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, server, supervisor = await first_lease(imaged, "3.12.1")
    known = imaged.service.services.environments
    with pytest.raises(GPULeaseError):
        known.check(stu(), None, runs("3.11.7"))
    later = imaged.service.services.loop.clock() + REMEMBERED + timedelta(minutes=1)
    monkeypatch.setattr(known, "clock", lambda: later)
    assert known.check(stu(), None, runs("3.11.7")) == []
    for peer in (supervisor, server):
        await peer.close()


def test_the_image_of_the_course_on_whose_seat_they_would_sit_counts() -> None:
    """By the open window of a group of theirs; nobody else's class is another for it."""
    own = ReservationTerms(groups=(("cs101", GroupTerms(image="cs101:1")),))
    policy = replace(snapshot([]).policy, reservations=own)
    asked: list[str] = []

    def image(_: object, course: str) -> str:
        asked.append(course)
        return ""

    known = Environments(image, lambda: policy, lambda _: (window(start=-60),), lambda: at(0))
    name = window().of.gpu_class
    known.check(replace(stu(), groups=("cs101",)), name, runs("3.11.7"))
    known.check(stu(), name, runs("3.11.7"))
    assert asked == ["cs101:1", ""]


async def test_what_a_supervisor_says_later_is_not_believed(imaged: Site) -> None:
    """Its first word comes before any code of its user could run; later ones may be forged."""
    lease, server, supervisor = await first_lease(imaged, "3.11.2")
    await supervisor.close()
    grant = await server.grant(lease["id"])
    forged = {"python": "3.99.0", "executable": CONDA}
    back = await type(supervisor).start(imaged, lease["id"], grant, **forged)
    await back.next("lease")
    assert imaged.service.services.environments.check(stu(), None, runs("3.11.7")) == []
    for peer in (back, server):
        await peer.close()


async def test_text_in_place_of_a_version_reaches_no_other_notebook(imaged: Site) -> None:
    """And does not cost the supervisor its channel."""
    _, server, supervisor = await first_lease(imaged, "3.11.2", numpy="2.0, visit x", tqdm="4")
    known = imaged.service.services.environments
    assert known.check(replace(stu(), name="ada"), None, runs("3.11.7", numpy="2.1", tqdm="5")) == [
        "numpy 2.1 is not installed on the GPU.",
        "tqdm is 5 here and 4 on the GPU.",
    ]
    for peer in (supervisor, server):
        await peer.close()


async def first_lease(site: Site, python: str, **packages: str) -> Any:
    return await active_lease(site, hello=dict(runs(python, **packages)))
