"""One machine whose people have accounts of their own: what then keeps them apart.

The shipped configuration (``hub_config/local_jupyterhub_config.py``) with a hub run by root, system
users made for the test, and a lease service that is nobody in particular.
"""

import asyncio
import json
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpulease.demo.browse import Browser
from gpulease.system.loopback_ports import free_port
from tests.end_to_end.open_python import as_account, for_everybody
from tests.end_to_end.people import LONG
from tests.helpers import is_root, process_is_gone, wait_for, wait_for_async

pytestmark = pytest.mark.site

NOBODY = 65534  # whoever runs the service: it owns its database and nothing else
READY_FILE = Path(__file__).parents[2] / "hub_config/local_jupyterhub_config.py"
OURS = """
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub}"
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.log_level = "ERROR"
c.JupyterHub.cleanup_servers = True
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api}"
c.ConfigurableHTTPProxy.command = [{python!r}, "-m", "gpulease.demo.proxy"]
c.Spawner.cmd = [{python!r}, "-P", "-m", "jupyterhub.singleuser"]
c.Spawner.http_timeout = c.Spawner.start_timeout = 120
"""

#: What one person's notebook may find out about another's processes.
PRY = """
import os, signal, socket
found = []
def attempt(what, do):
    try:
        do()
    except PermissionError:
        return
    except OSError as error:
        found.append(f"{{what}}: {{error}}")
        return
    found.append(what)
def knock():
    with socket.socket(socket.AF_UNIX) as door:
        door.connect({bus!r})
for pid in {pids!r}:
    attempt(f"environment of {{pid}}", lambda: open(f"/proc/{{pid}}/environ", "rb").read())
    attempt(f"memory of {{pid}}", lambda: open(f"/proc/{{pid}}/mem", "rb"))
    attempt(f"signal to {{pid}}", lambda: os.kill(pid, signal.SIGTERM))
attempt("bus", knock)
attempt("home", lambda: os.listdir({home!r}))
print("found", found)
"""


def _why_not() -> str:
    if not is_root() or shutil.which("useradd") is None:
        return "not root: no system users can be made"
    tried = subprocess.run(
        [*for_everybody(), *as_account(NOBODY), sys.executable, "-c", "import gpulease.companion"],
        env={"PATH": os.defpath}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return f"other users cannot run this Python: {tried.stderr}" if tried.returncode else ""


@dataclass
class Site:
    """A hub, a service, and two people with accounts."""

    url: str
    people: tuple[str, str]


@pytest.fixture
def people() -> Iterator[tuple[str, str]]:
    names = tuple(f"gpl{secrets.token_hex(4)}" for _ in range(2))
    try:
        for name in names:
            subprocess.run(["useradd", "--create-home", "-K", "HOME_MODE=0700", name], check=True)
        yield names[0], names[1]
    finally:
        for name in names:
            subprocess.run(["userdel", "--remove", name], check=False, stderr=subprocess.DEVNULL)


@pytest.fixture
def site(people: tuple[str, str]) -> Iterator[Site]:
    directory = Path(tempfile.mkdtemp(prefix="gpl-users-"))
    public, hub, api, service = (free_port() for _ in range(4))
    text = READY_FILE.read_text().replace(":8000/", f":{public}/").replace(":9980", f":{service}")
    config = directory / "jupyterhub_config.py"
    config.write_text(text + OURS.format(hub=hub, api=api, python=sys.executable))
    token = secrets.token_hex(16)
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "GPULEASE_"))}
    here = {**environ, "GPULEASE_SERVICE_TOKEN": token}
    root = [sys.executable, "-m", "jupyterhub", "-f", str(config)]
    own = directory / "service"
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    directory.chmod(0o755)
    database = ["--database=sqlite:///leases.sqlite", f"--url=http://127.0.0.1:{service}"]
    nobody = [sys.executable, "-P", "-m", "gpulease.cli", "service", "--simulate", "--gpus=2"]
    told = {
        **environ, "HOME": str(own), "JUPYTERHUB_API_TOKEN": token,
        "JUPYTERHUB_API_URL": f"http://127.0.0.1:{hub}/hub/api",
        "JUPYTERHUB_SERVICE_NAME": "gpulease", "JUPYTERHUB_CLIENT_ID": "service-gpulease",
        "JUPYTERHUB_SERVICE_PREFIX": "/services/gpulease/",
    }  # fmt: skip
    log = (directory / "log").open("wb")
    opened = for_everybody()
    running = [
        subprocess.Popen([*opened, *root], cwd=directory, env=here, stdout=log, stderr=log),
        subprocess.Popen(
            [*opened, *as_account(NOBODY), *nobody, *database],
            cwd=own, env=told, stdout=log, stderr=log,
        ),
    ]  # fmt: skip
    try:
        url = f"http://127.0.0.1:{public}/"
        wait_for(lambda: _answers(f"{url}services/gpulease/api/health", log.name), 120, "the hub")
        yield Site(url, people)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(90)
        log.close()
        shutil.rmtree(directory)


def _answers(url: str, log: str) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, urllib.request as r; r.urlopen(sys.argv[1])", url],
        env={"no_proxy": "*"}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, Path(log).read_text(errors="replace")[-3000:]
    return True


@pytest.mark.timeout(600)
def test_each_person_runs_cells_as_themselves_and_sees_nothing_of_the_others(
    request: pytest.FixtureRequest,
) -> None:
    if why := _why_not():
        pytest.skip(why)
    site: Site = request.getfixturevalue("site")
    asyncio.run(_two_people(site))


async def _two_people(site: Site) -> None:
    first, second = site.people
    accounts = [pwd.getpwnam(name).pw_uid for name in site.people]
    async with Browser(site.url) as one, Browser(site.url) as two:
        kernels = []
        for browser, name in ((one, first), (two, second)):
            await browser.log_in(name, name)
            await browser.start_server()
            await browser.open_service()
            kernels.append(await browser.connect(await browser.start_kernel("test.ipynb")))
        async with kernels[0] as mine, kernels[1] as other:
            looked = []
            for kernel in (mine, other):
                await _ok(kernel, "kept = [1]")
                code = (
                    "%%gpu\nimport json, os, subprocess\nkept.append(2)\n"
                    "left = subprocess.Popen(['sleep', '600'], start_new_session=True).pid\n"
                    "print('saw', json.dumps([os.getuid(), os.getpid(), os.getppid(), left,"
                    " [name for name in os.environ if 'TOKEN' in name]]))"
                )
                looked.append(json.loads((await _ok(kernel, code)).split("saw")[1].strip()))
            assert [uid for uid, *_ in looked] == accounts
            assert [names for *_, names in looked] == [[], []]
            home = await _ok(
                mine, "import os; print('bus', os.environ['GPULEASE_BUS'], os.getpid())"
            )
            bus, kernel_pid = home.split("bus")[1].split()
            pids = [*looked[0][1:4], int(kernel_pid)]
            pry = PRY.format(bus=bus, pids=pids, home=pwd.getpwnam(first).pw_dir)
            open_to_oneself = PRY.format(bus=bus, pids=[], home=pwd.getpwnam(first).pw_dir)
            assert "found ['bus', 'home']" in await _ok(mine, open_to_oneself)
            assert "found []" in await _ok(other, pry)
            assert "found []" in await _ok(other, f"%%gpu\n{pry}")

            await _ok(mine, "%gpu return")
            assert "[1, 2]" in await _ok(mine, "print(kept)")
            for pid in looked[0][1:4]:
                await wait_for_async(lambda pid=pid: process_is_gone(pid), LONG, f"process {pid}")

            async def free() -> bool:
                (offer,) = (await one.service_api("GET", "classes"))["items"]
                return bool(offer["free"] == offer["total"] - 1)

            await wait_for_async(free, LONG, "the device is free though nobody may look inside")
            assert "[1, 2]" in await _ok(other, "%%gpu\nprint(kept)")


async def _ok(kernel, code: str) -> str:
    done = await kernel.execute(code, seconds=LONG)
    assert done.status == "ok", f"{code!r} failed with {done.error}; it showed {done.text}"
    return done.text
