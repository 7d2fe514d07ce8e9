"""Every page of the service under axe-core, light and dark, wide and narrow."""

from collections.abc import Callable
from typing import Any, get_args

import pytest

from gpulease.policy.explanation.catalogue import AUDITED
from gpulease.policy.reasons import WAITING
from gpulease.service.leases.device_map import Use
from gpulease.service.pages import PageReader
from gpulease.texts import Text
from tests.pages.stage import Stage, lease, soon

pytestmark = pytest.mark.browser
ADMIN = ("admin", "admin#usage", "admin#history", "admin#audit", "policy#advanced", "health")
PAGES = ("", "card", "group", *ADMIN, "guide/student.html")
#: What a page shows once the service has answered.
SHOWS_DATA = ":is(tbody tr, .gl-lease, .gl-card-lease, dl, .gl-out):visible"
STATES = ("queued", "starting", "active", "warned", "draining", "ended")
HOLDING = ("active", "warned", "draining", "ended")


@pytest.fixture
def busy_stage(stage: Stage) -> Stage:
    make_busy(stage)
    return stage


def make_busy(stage: Stage) -> None:
    """Put everybody's leases in every state there, and things to read on every page."""
    stage.reader = PageReader("root", admin=True)
    for state in STATES:
        share = 0.5 if state in HOLDING else None
        stage.put(lease(state, id=f"of-{state}", user="root", server=state, busy_share=share))
        stage.put(lease(state, id=f"hers-{state}", user="ada"))
    stage.ended = [lease("ended", id="e0")]
    stage.devices = [
        {
            "uuid": f"G{number}",
            "name": f"GPU {number}",
            "pool": "cards",
            "node": "",
            "use": use,
            "memory": 0,
            "simulated": True,
            "user": "ada",
            "lease": "l",
            "gpu_class": "t4",
            "why": "",
        }
        for number, use in enumerate(get_args(Use))
    ]
    stage.audit = [
        {
            "at": soon(-60),
            "who": "ada",
            "why": "asked",
            "sentence": Text(AUDITED["asked"]),
            "user": "ada",
            "lease": "l",
            "gpu_class": "t4",
            "source": "",
            "target": "queued",
            "note": "",
        }
    ]
    stage.policy["text"] = "\n".join(f"# line {number}" for number in range(60))  # it scrolls
    stage.incidents = [
        {"at": soon(-60), "who": "planner", "why": "capacity_taken",
         "sentence": Text(WAITING["capacity_taken"][0]),
         "user": "ada", "lease": "l", "gpu_class": "sim", "note": "0/3 nodes"}
    ]  # fmt: skip


@pytest.mark.parametrize("path", ["", "card", "group", "admin", "admin#usage", "policy", "health"])
def test_a_page_is_small(busy_stage: Stage, page: Any, path: str) -> None:
    """What comes over the wire for it; the hub's own style is in the browser already."""
    own = busy_stage.url
    answers: list[Any] = []
    page.on("response", lambda answer: answers.append(answer))
    page.goto(busy_stage.url + path)
    page.wait_for_selector(SHOWS_DATA)
    if path == "admin#usage":
        page.wait_for_selector("#charts canvas")
    own_answers = [each for each in answers if each.url.startswith(own)]
    sizes = {each.url: each.request.sizes()["responseBodySize"] for each in own_answers}
    assert any(url.endswith(".js") and size for url, size in sizes.items())
    assert sum(sizes.values()) <= 250_000, sizes


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_accessible(
    busy_stage: Stage, profile: Any, assert_accessible: Callable[..., None], path: str
) -> None:
    page = profile.new_page()
    page.goto(busy_stage.url + path)
    page.wait_for_selector(SHOWS_DATA)
    # Colours do not depend on the width, nor names on the theme.
    for width, theme in ((360, "dark"), (1280, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        page.wait_for_selector(f'html[data-bs-theme="{theme}"]', state="attached")
        assert_accessible(page)
