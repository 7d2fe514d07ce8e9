"""A picture of each state of a lease as each role sees it; a state without one fails here."""

from typing import Any

import pytest

from gpulease.policy.model import LeaseState
from gpulease.service.pages import PageReader
from tests.browser.pictures import Pictures
from tests.pages.stage import Stage, gpu_class, lease, soon

pytestmark = pytest.mark.browser

#: Who looks, at which page, and where a lease of `ada` stands there.
ROLES = {
    "student": (PageReader("ada"), "", '#leases [data-state="{state}"]'),
    "instructor": (PageReader("ida", leads=("cs101",)), "group", "tr:has-text('ada')"),
    "admin": (PageReader("root", admin=True), "admin", "tr:has-text('ada')"),
}
SENTENCES = {
    "queued": ("All GPUs of this class are in use.", "Your notebook keeps running meanwhile."),
    "starting": ("Your GPU is starting.", ""),
    "active": ("The GPU is ready.", "Run a cell with %%gpu, or %gpu on for every cell."),
    "warned": ("The GPU was not used for 5 min.", "Use it, or press Keep."),
    "draining": ("Your variables are copied back to the notebook.", ""),
    "ended": ("The GPU was released: it was idle.", "Your variables are in the notebook."),
}
GPUS = [f"GPU {number}" for number in range(4)]


def shown(stage: Stage, state: str) -> None:
    """Put the lease into a state, with what a site would say beside it."""
    sentence, next_step = SENTENCES[state]
    more = {"position": 2, "expected_start": soon(720)} if state == "queued" else {}
    own = lease(state, sentence=sentence, next_step=next_step, notebook="lab.ipynb", **more)
    stage.put(own)
    stage.ended = [own] if state == "ended" else []
    stage.classes = [gpu_class(free=0, queued=1, total=4, price=2.0, expected_start=soon(720))]
    uses = {"active": "busy", "ended": "free", "queued": "busy"}
    use = uses.get(state, state)
    holder = {"free": "", "busy": "joan"}.get(use, "ada") if state != "active" else "ada"
    stage.devices = [
        {
            "uuid": name,
            "name": name,
            "pool": "cards",
            "node": "gpu-1",
            "memory": 16 << 30,
            "simulated": True,
            "use": use if number == 0 else "busy",
            "user": holder if number == 0 else "joan",
            "lease": "",
            "gpu_class": "sim",
            "why": "",
        }
        for number, name in enumerate(GPUS)
    ]


@pytest.mark.parametrize("role", ROLES)
def test_each_role_has_a_picture_of_each_state(
    role: str, stage: Stage, profile: Any, pictures: Pictures
) -> None:
    reader, path, place = ROLES[role]
    stage.reader = reader
    stage.groups = {"cs101": ["ada", "grace"]}
    page = profile.new_page()
    for state in map(str, LeaseState):
        shown(stage, state)
        page.goto(stage.url + path + ("#history" if (role, state) == ("admin", "ended") else ""))
        page.wait_for_selector(place.format(state=state))
        pictures.take(page, f"{role}-{state}")
    assert {f"{role}-{state}" for state in LeaseState} <= pictures.taken


def test_the_admins_charts_have_a_picture(stage: Stage, profile: Any, pictures: Pictures) -> None:
    stage.reader = ROLES["admin"][0]
    page = profile.new_page()
    page.goto(stage.url + "admin#usage")
    page.wait_for_selector("#charts canvas >> nth=1")
    pictures.take(page, "admin-usage")
