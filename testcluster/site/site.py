"""Starts, kills and restarts a site's processes, each by its name.

They end with the test's process, even if that is killed.
"""

import contextlib
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from gpulease.companion.tree import die_with_parent
from gpulease.protocol import labels
from testcluster.api import Api, Object
from testcluster.cluster import Cluster
from testcluster.devices import card
from testcluster.layout import NODE, NODE_ADDRESS
from testcluster.processes import REPOSITORY
from testcluster.site import encryption, settings, shipped
from testcluster.site.settings import Ports, Settings
from tests.gpus.stand_in import Driver
from tests.helpers import wait_for

PROCESSES = ("proxy", "hub", "service", "agent")
PASSWORD = "correct horse"
START_MAX = 120.0
CARDS = 5


class Site:
    """One hub with its proxy and lease service on a cluster."""

    def __init__(self, cluster: Cluster, chosen: Settings) -> None:
        self.cluster = cluster
        self.settings = chosen
        self._proxy_token = secrets.token_hex(16)
        uuids = {f"{number}.uuid": card(number) for number in range(CARDS)}
        #: What the agent's driver says; no card is used until a test says so.
        self.driver = Driver(chosen.directory / "driver", CARDS)
        self.driver.set(uuids)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        # The kernel ends a child with the thread that started it; this one lives as long as we do.
        self._starter = ThreadPoolExecutor(1, "site")

    #: Whom browsers trust, where the hub is called by https.
    tls: ssl.SSLContext | None = None
    #: What the lease service is called at this hub.
    service = "gpulease"
    #: What the service calls this hub's people, before their name here.
    prefix = ""

    @property
    def url(self) -> str:
        """The hub's address for browsers."""
        return settings.url(self.settings.ports.public)

    def start(self, *names: str) -> None:
        """Start processes at once, and wait until each of them answers."""
        for name in names:
            started = self._starter.submit(self._run, name, self._command(name))
            self._running[name] = started.result()
        for name in names:
            self._wait_until_it_answers(name, self._address_of(name))

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """End one process at once."""
        process = self._running.pop(name)
        process.send_signal(number)
        process.wait(60)

    def stop(self) -> None:
        """End all of them in order."""
        for name in reversed(tuple(self._running)):
            with contextlib.suppress(ProcessLookupError):
                self.kill(name, signal.SIGTERM)
        self._starter.shutdown()

    def pids(self) -> list[int]:
        """Return the processes that run."""
        return [process.pid for process in self._running.values()]

    def pid(self, name: str) -> int:
        """Return a process's number."""
        return self._running[name].pid

    def lease_pods(self) -> list[Object]:
        """Return the pods of this site's leases, in whichever namespace."""
        selector = labels.lease_selector(labels.APP)
        return self.cluster.api.items("/api/v1/pods", labelSelector=selector)

    def allocatable(self) -> int:
        """Return how many whole cards the node offers."""
        node = self.cluster.api.get(f"/api/v1/nodes/{NODE}")
        return int(node["status"]["allocatable"]["nvidia.com/gpu"])

    def log(self, name: str) -> Path:
        return self.settings.directory / f"{name}.log"

    def tail(self, name: str, lines: int = 40) -> str:
        text = self.log(name).read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def words(self) -> str:
        """Return what a failure is understood by: the agent's newest figures, and the last lines
        of agent and service.
        """
        try:
            with urllib.request.urlopen(self._address_of("agent"), timeout=10) as answer:
                figures = answer.read().decode()
        except OSError as error:
            figures = f"no answer: {error}"
        shown = [line for line in figures.splitlines() if not line.startswith("#")]
        logs = [f"{name}:\n{self.tail(name, 15)}" for name in ("agent", "service")]
        return "\n".join(["the agent's figures:", *shown, *logs])

    def _wait_until_it_answers(self, name: str, url: str) -> None:
        def answers() -> bool:
            assert self._running[name].poll() is None, f"{name} ended:\n{self.tail(name)}"
            try:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    return bool(answer.status)
            except urllib.error.HTTPError:
                # A proxy without a hub answers; what is asked for through it does not.
                return name != "hub" and not (name == "service" and self.settings.encrypted)
            except OSError:
                return False

        wait_for(answers, START_MAX, f"{name} to answer")

    def _run(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        if self.settings.encrypted:
            command = encryption.with_names(self.settings.directory, command)
        with self.log(name).open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.settings.directory,
                env=self._environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )

    def _address_of(self, name: str) -> str:
        """Return where a process answers once it is ready."""
        ports = self.settings.ports
        return {
            "proxy": settings.url(ports.public, "/"),
            "hub": settings.url(ports.public, "/hub/health"),  # its route stands, too
            "service": settings.url(
                # Who shows no certificate of the hub's reaches an encrypted one through its proxy.
                ports.public if self.settings.encrypted else ports.service,
                f"{settings.PREFIX}api/health",
            ),
            "agent": settings.url(ports.agent, "/metrics"),
        }[name]

    def _command(self, name: str) -> list[str]:
        """Return what starts a process."""
        return {
            "proxy": self._proxy_command(),
            "hub": [sys.executable, "-m", "jupyterhub", "-f", "jupyterhub_config.py"],
            "service": [sys.executable, "-m", "gpulease.cli", "service", "--config", "service.py"],
            "agent": self._agent_command(),
        }[name]

    def _proxy_command(self) -> list[str]:
        ports, encrypted = self.settings.ports, self.settings.encrypted
        program = "testcluster.site.tls_proxy" if encrypted else "gpulease.demo.proxy"
        return [
            *(sys.executable, "-m", program),
            *("--ip", NODE_ADDRESS, "--port", str(ports.public)),
            *("--api-ip", NODE_ADDRESS, "--api-port", str(ports.proxy)),
            *("--error-target", settings.hub_url(self.settings, "/hub/error")),
            *(encryption.proxy_options(self.settings.directory) if encrypted else []),
        ]

    def _agent_command(self) -> list[str]:
        ports, layout = self.settings.ports, self.cluster.layout
        trust = ["--plain-http"]
        if self.settings.encrypted:
            trust = ["--ca-file", encryption.authorities(self.settings.directory)]
        return [
            *(sys.executable, "-m", "gpulease.cli", "agent", *trust, "--node", NODE),
            *("--service", settings.service_url(self.settings, settings.PREFIX)),
            *("--token-file", "agent.token", "--ledger", "agent.ledger"),
            *("--kubelet-socket", str(layout.pod_resources_socket)),
            *("--host", NODE_ADDRESS, "--port", str(ports.agent)),
            *("--every", "2", "--every-held", "1"),
        ]

    def _environment(self, name: str) -> dict[str, str]:
        own = {"CONFIGPROXY_AUTH_TOKEN": self._proxy_token}
        if name == "hub":
            own["KUBECONFIG"] = str(self.settings.directory / "hub.kubeconfig")
            own["SITE_PASSWORD"] = PASSWORD
            own["SITE_SERVICE_TOKEN"] = self.settings.hub_token
        elif name == "service":
            own = settings.service_environment(self.settings)
        elif name == "agent":
            own = self.driver.environment()
        elif self.settings.encrypted:
            own["PYTHONPATH"] = str(REPOSITORY)
        return {**os.environ, **own}


@contextmanager
def running_site(
    cluster: Cluster,
    directory: Path,
    policy: str,
    *,
    processes: Sequence[str] = PROCESSES,
    hub_port: int | None = None,
    **changes: object,
) -> Iterator[Site]:
    """Install gpulease on the cluster and start a hub and a service; end them afterwards.

    The caller is inside the cluster's network.  Pods that are left of it end with it: the next
    site's service would take the leases for its own.
    With fewer `processes`, whatever answers in place of the hub does so at `hub_port`.
    """
    api = cluster.api
    shipped.apply(api)
    clear(api)
    shipped.add_volumes(api, cluster.layout.volumes)
    hub, own = (shipped.HUB_NAMESPACE, "hub"), (shipped.OWN_NAMESPACE, "gpulease")
    shipped.write_kubeconfig(api, directory / "hub.kubeconfig", *hub)
    shipped.write_kubeconfig(api, directory / "service.kubeconfig", *own)
    _write_agent_token(cluster, directory / "agent.token")
    ports = _free_ports() if hub_port is None else replace(_free_ports(), hub=hub_port)
    chosen = Settings(directory, ports, secrets.token_hex(16), policy, **changes)  # type: ignore[arg-type]
    for name, text in (
        ("jupyterhub_config.py", settings.hub_config(chosen)),
        ("service.py", settings.service_config(chosen)),
        ("policy.yaml", policy),
    ):
        (directory / name).write_text(text, encoding="utf-8")
    site = Site(cluster, chosen)
    with (
        encryption.prepared(api, directory, ports.hub, ports.service)
        if chosen.encrypted
        else nullcontext()
    ):
        try:
            site.start(*processes)
            yield site
        finally:
            site.stop()
            cluster.wait_for_api()
            clear(api)


def clear(api: Api, namespace: str = shipped.HUB_NAMESPACE) -> None:
    """End every pod in the servers' namespace, and wait until they are gone."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 1}
    for each in api.items(path):
        api.remove(f"{path}/{each['metadata']['name']}", options)
    wait_for(lambda: not api.items(path), START_MAX, "no pod of an earlier site")


def _write_agent_token(cluster: Cluster, path: Path) -> None:
    """Write what the agent's pod on the node would have: a token that is bound to the node."""
    node = {"apiVersion": "v1", "kind": "Node", **cluster.api.get(f"/api/v1/nodes/{NODE}")}
    own, account = shipped.OWN_NAMESPACE, "gpulease-agent"
    token = cluster.api.new_token(own, account, audience="gpulease", bound_to=node)
    path.touch(mode=0o600)
    path.write_text(token, encoding="ascii")


def _free_ports() -> Ports:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(5)]
        for probe in probes:
            probe.bind((NODE_ADDRESS, 0))
        return Ports(*(probe.getsockname()[1] for probe in probes))
