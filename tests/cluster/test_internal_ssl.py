"""A whole round on Kubernetes where hub, proxy, servers and lease service speak TLS to each other.

The hub reaches its servers by the names of their Services, as on any cluster; `testcluster.names`
answers for them.  The websocket of the student's notebook goes through the encrypted proxy.
"""

import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from testcluster.cluster import Cluster
from testcluster.devices import card
from testcluster.layout import NODE_ADDRESS
from testcluster.names import DOMAIN, addresses
from testcluster.site import encryption, settings
from testcluster.site.people import LONG, at_work
from testcluster.site.shipped import HUB_NAMESPACE
from testcluster.site.site import Site, running_site
from tests.cluster.conftest import POLICY
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SERVER = f"jupyter-ada.{HUB_NAMESPACE}.{DOMAIN}"
SERVER_PORT = 8888
CARDS = [card(number) for number in range(4)]
#: The GPU is used on after the cell.
LEFT = """%%gpu
import os, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(os.environ["NVIDIA_VISIBLE_DEVICES"])
"""


@pytest.fixture(scope="module")
def encrypted(cluster: Cluster) -> Iterator[Site]:
    """A site with `internal_ssl`."""
    directory = Path(tempfile.mkdtemp(prefix="site-", dir=cluster.layout.logs))
    with running_site(cluster, directory, POLICY, encrypted=True) as running:
        yield running


async def test_a_cell_runs_beside_the_gpu_and_its_variables_come_home(encrypted: Site) -> None:
    site = encrypted
    async with at_work(site, "ada") as ada:
        await ada.run("numbers = list(range(1000))")
        cell = await ada.run(
            "%%gpu\ntotal = sum(numbers)\nimport os; print(os.environ['HOSTNAME'])"
        )
        (pod,) = site.lease_pods()
        assert pod["metadata"]["name"] in cell.text
        assert f"https://{encryption.SERVICE}:" in json.dumps(pod["spec"])
        nothing_of_the_hubs_certificates(pod)
        only_who_shows_a_certificate_gets_in(site)

        await ada.watch.wait_for("ended", seconds=LONG)
        assert ada.watch.lease is not None
        assert ada.watch.lease["reason"] == "idle"
        await wait_for_async(lambda: not site.lease_pods(), LONG, "the lease pod to be gone")
        assert "total 499500" in (await ada.run("print('total', total)")).text
        health = await ada.browser.service_api("GET", "health")
        assert health["hub"] == "ok"


async def test_the_service_and_the_hub_know_each_other_by_certificates(encrypted: Site) -> None:
    """It notes activity for a server whose GPU works, and learns that a server was stopped."""
    site = encrypted

    def asked(what: str) -> bool:
        return f"{what} (gpulease@" in site.log("hub").read_text(encoding="utf-8")

    async with at_work(site, "bob") as bob:
        (device,) = re.findall(r"GPU-[0-9a-f-]+", (await bob.run(LEFT)).text)
        number = CARDS.index(device)
        site.driver.set({f"{number}.use": 90})
        try:
            await wait_for_async(
                lambda: asked("POST /hub/api/users/bob/activity"), LONG, "activity to be noted"
            )
        finally:
            site.driver.set({f"{number}.use": 0})
        assert len(site.lease_pods()) == 1
    await wait_for_async(lambda: not site.lease_pods(), LONG, "the lease pod to be gone")
    assert asked("GET /hub/api/users/bob")


def test_the_doctor_reaches_the_hub_by_the_services_certificate(encrypted: Site) -> None:
    chosen = encrypted.settings
    doctor = [sys.executable, "-m", "gpulease.cli", "doctor", "--config", "service.py"]
    done = subprocess.run(
        encryption.with_names(chosen.directory, doctor),
        cwd=chosen.directory,
        env={**os.environ, **settings.service_environment(chosen)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert re.search(r"(?m)^ok +hub +The hub answers", done.stdout), done.stdout + done.stderr
    assert re.search(r"(?m)^ok +rights ", done.stdout), done.stdout


def nothing_of_the_hubs_certificates(pod: dict[str, object]) -> None:
    text = json.dumps(pod["spec"])
    for each in ("JUPYTERHUB_SSL", "internal-certs", "ssl.key", "/etc/jupyterhub/ssl"):
        assert each not in text


def only_who_shows_a_certificate_gets_in(site: Site) -> None:
    """Server, hub and the proxy's routes answer to one of the hub's authorities alone."""
    store = encryption.store(site.settings.directory)
    (server,) = addresses(site.cluster.api, SERVER) or []
    ports = site.settings.ports
    for address, port, name, pair, path in (
        (server, SERVER_PORT, SERVER, "proxy-client", "/user/ada/api"),
        (NODE_ADDRESS, ports.hub, encryption.HUB, "hub-internal", "/hub/api"),
        (NODE_ADDRESS, ports.proxy, NODE_ADDRESS, "hub-internal", "/api/routes"),
    ):
        tls = trusting_all_of(store)
        with pytest.raises(OSError):  # noqa: PT011 - a reset as well as an alert
            status(tls, address, port, name, path)
        tls.load_cert_chain(store / pair / f"{pair}.crt", store / pair / f"{pair}.key")
        assert status(tls, address, port, name, path) in {200, 403}
        with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname mismatch"):
            status(tls, address, port, "another.example", path)


def trusting_all_of(store: Path) -> ssl.SSLContext:
    tls = ssl.create_default_context()
    for authority in store.glob("*-ca/*-ca.crt"):
        tls.load_verify_locations(authority)
    return tls


def status(tls: ssl.SSLContext, address: str, port: int, name: str, path: str) -> int:
    """Return what is answered to one who calls the other side by this name."""

    class Named(HTTPSConnection):
        def connect(self) -> None:
            self.host, asked = address, self.host
            super(HTTPSConnection, self).connect()
            self.sock = tls.wrap_socket(self.sock, server_hostname=asked)

    connection = Named(name, port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()
