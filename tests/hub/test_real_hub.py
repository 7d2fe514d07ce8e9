"""A real hub with a site's own settings, and gpulease added: what its people and servers get."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from gpulease.demo.browse import Browser
from gpulease.errors import GPULeaseError
from tests.helpers import free_port, wait_for

pytestmark = pytest.mark.timeout(300)

SERVICE_TOKEN = "service-token-for-this-test-only"

CONFIG = """
import sys
from gpulease.hub import compat, setup_gpulease

c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{public}/"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub}"
c.JupyterHub.db_url = "sqlite:///{directory}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{directory}/secret"
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.default_url = "/hub/home"
c.DummyAuthenticator.password = "secret"
c.Authenticator.allow_all = True
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.ConfigurableHTTPProxy.pid_file = "{directory}/proxy.pid"
c.ConfigurableHTTPProxy.command = [sys.executable, "-m", "gpulease.demo.proxy"]
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
    ports = {name: free_port() for name in ("public", "hub", "proxy", "service")}
    config = directory / "jupyterhub_config.py"
    config.write_text(
        CONFIG.format(
            **ports,
            directory=directory,
            token=SERVICE_TOKEN,
            server=Path(__file__).with_name("stand_in_server.py"),
        )
    )
    log = directory / "hub.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", str(config)],
            cwd=directory,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        url = f"http://127.0.0.1:{ports['public']}/"
        wait_for(
            lambda: process.poll() is not None or "is now running at" in log.read_text(),
            seconds=170,
            what="the hub runs",
        )
        assert process.poll() is None, log.read_text()
        asyncio.run(_start(url))
        yield url, directory
    finally:
        process.terminate()
        process.wait(60)


async def _start(url):
    async with Browser(url) as browser:
        await browser.log_in("stu", "secret")
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
        await browser.log_in(user, "secret")
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
            await browser.log_in("stu", "secret")
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
            await browser.log_in("wants-gpu", "secret")
            with pytest.raises(GPULeaseError) as refused:
                await browser.spawn()
            return refused.value

    refused = asyncio.run(spawn())
    assert refused.status == 400
    assert "Your server was not started: 100% told so." in refused.sentence
    assert "what the admin reads" not in refused.sentence
    assert "Traceback" not in (directory / "hub.log").read_text()
