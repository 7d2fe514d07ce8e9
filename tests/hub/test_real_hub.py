"""A real hub with a site's own settings, and gpulease added: what its people and servers get."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from gpulease.demo.browse import Browser
from gpulease.errors import GPULeaseError
from gpulease.system.loopback_ports import free_port
from tests.hub.running import PASSWORD, HubPlace, running_hub

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

SERVICE_TOKEN = "service-token-for-this-test-only"

CONFIG = """
from gpulease.hub import compat, setup_gpulease

c.JupyterHub.default_url = "/hub/home"
c.SimpleLocalProcessSpawner.home_dir_template = "{directory}/homes/{{username}}"
c.Spawner.cmd = [sys.executable, "{server}"]
c.Spawner.environment = {{"SITE": "own", "PYTHONHASHSEED": "7"}}


def refuse(spawner):
    if spawner.user.name == "wants-gpu":
        raise compat.spawn_refused(
            "Your server was not started: 100% told so.",
            reason="gpu_in_server",
            log_message="what the admin reads: 100%",
        )

c.Spawner.pre_spawn_hook = refuse

# What a site may have of its own.
c.JupyterHub.template_paths = ["{directory}/site"]
c.JupyterHub.custom_scopes = {{"custom:site:read": {{"description": "the site's"}}}}
c.JupyterHub.load_roles = [
    {{"name": "site-people", "scopes": ["custom:site:read"], "users": ["stu"]}}
]
async def site_scopes(spawner):
    return ["users:activity!user", "access:servers!server", "custom:site:read"]
c.SimpleLocalProcessSpawner.server_token_scopes = site_scopes

setup_gpulease(
    c,
    service_url="http://127.0.0.1:{service}",
    service_command=[sys.executable, "-m", "http.server", "{service}", "--bind", "127.0.0.1"],
    allow_service_as_root=True,  # as CI is; it is a file server here
    service_token="{token}",
    spawner_class="simple",
    instructors={{"cs101": ["ines"]}},
    admins=["ada"],
)
"""

SITE_HOME = """{% extends "templates/home.html" %}
{% block main %}{{ super() }}<p>The site's own notice</p>{% endblock %}
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """The hub's address and directory; `stu` has a running server."""
    directory = tmp_path_factory.mktemp("hub")
    (directory / "site").mkdir()
    (directory / "site" / "home.html").write_text(SITE_HOME)
    place = HubPlace(directory)
    rest = CONFIG.format(
        directory=directory,
        service=free_port(),
        token=SERVICE_TOKEN,
        server=Path(__file__).with_name("stand_in_server.py"),
    )
    with running_hub(place, rest):
        asyncio.run(_start(place.url))
        yield place.url, directory


async def _start(url):
    async with Browser(url) as browser:
        await browser.log_in("stu", PASSWORD)
        await browser.spawn()


def environment(directory):
    return json.loads((directory / "homes" / "stu" / "environment.json").read_text())


async def ask(url, path, token):
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"token {token}"}) as session,
        session.get(f"{url}hub/api/{path}") as answer,
    ):
        return answer.status, await answer.json()


async def scopes_of(url, user):
    async with Browser(url) as browser:
        await browser.log_in(user, PASSWORD)
        return set((await browser.hub_api("GET", "user"))["scopes"])


def test_the_server_has_no_gpu_and_knows_the_service(hub):
    _url, directory = hub
    found = environment(directory)
    assert found["CUDA_VISIBLE_DEVICES"] == ""
    assert found["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert found["GPULEASE_AUTOLOAD"] == "1"
    assert found["GPULEASE_SERVICE_URL"].endswith("/services/gpulease/")


def test_the_sites_environment_stays(hub):
    found = environment(hub[1])
    assert found["SITE"] == "own"
    assert found["PYTHONHASHSEED"] == "7"


def test_the_servers_token_says_which_server_asks_and_keeps_the_sites_scopes(hub):
    url, directory = hub
    token = environment(directory)["JUPYTERHUB_API_TOKEN"]
    status, model = asyncio.run(ask(url, "user", token))
    assert status == 200
    scopes = set(model["scopes"])
    assert {s for s in scopes if s.startswith("access:servers")} == {"access:servers!server=stu/"}
    assert "custom:gpulease:request!user=stu" in scopes
    assert "access:services!service=gpulease" in scopes
    assert "custom:site:read" in scopes


def test_the_service_can_see_servers_and_note_activity_and_nothing_more(hub):
    url, _ = hub
    status, users = asyncio.run(ask(url, "users", SERVICE_TOKEN))
    assert status == 200
    stu = next(user for user in users if user["name"] == "stu")
    assert stu["servers"][""]["ready"]
    assert "auth_state" not in stu
    status, _answer = asyncio.run(ask(url, "users/stu/tokens", SERVICE_TOKEN))
    assert status in {403, 404}


def test_people_get_their_scopes(hub):
    url, _ = hub
    student = asyncio.run(scopes_of(url, "stu"))
    assert "custom:gpulease:request!user=stu" in student
    assert not {s for s in student if "reserve" in s or "gpulease:admin" in s}
    assert "custom:gpulease:reserve!group=cs101" in asyncio.run(scopes_of(url, "ines"))
    admin = asyncio.run(scopes_of(url, "ada"))
    assert {"custom:gpulease:admin", "custom:gpulease:request"} <= admin
    assert "servers" not in admin  # GPUs, not the hub


def test_the_home_page_shows_the_sites_own_page_and_the_card(hub):
    url, _ = hub

    async def home():
        async with Browser(url) as browser:
            await browser.log_in("stu", PASSWORD)
            return await browser.visit("hub/home")

    page = asyncio.run(home())
    assert "The site's own notice" in page
    assert "My Server" in page
    assert '<iframe src="/services/gpulease/card"' in page
    assert 'href="/services/gpulease/"' in page


def test_a_refused_spawn_tells_its_reason(hub):
    """The words reach the person on each version of the hub; the finding stays in the log."""
    url, directory = hub

    async def spawn():
        async with Browser(url) as browser:
            await browser.log_in("wants-gpu", PASSWORD)
            with pytest.raises(GPULeaseError) as refused:
                await browser.spawn()
            return refused.value

    refused = asyncio.run(spawn())
    assert refused.status == 400
    assert "Your server was not started: 100% told so." in refused.sentence
    assert "what the admin reads" not in refused.sentence
    assert "Traceback" not in (directory / "hub.log").read_text()
