"""A site whose hub is the Zero to JupyterHub chart's: its objects, its configuration, its names.

Everything that helm renders is on the API server but what would need images: hub, proxy and user
scheduler are processes inside the cluster's network, started with what their containers are given.
The service reads the settings that gpulease ships.  Names are Kubernetes's own, ports the chart's.
"""

import asyncio
import base64
import contextlib
import os
import secrets
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from testcluster import build, images, names
from testcluster.api import Api, Object, path_of
from testcluster.cluster import Cluster
from testcluster.layout import NODE_ADDRESS
from testcluster.pki import Authority
from testcluster.relay import Relay
from testcluster.site import encryption, shipped
from testcluster.site.settings import Ports, Settings
from testcluster.site.site import PASSWORD, Site, clear
from tests.hub import chart

#: Where the demo's proxy listens behind whatever gives the hub its certificate.
_BEHIND_TLS = 8100
_HTTP, _HTTPS = 8000, 8443
#: What needs an image, or is helm's to run before all others.
_NOT_APPLIED = {"Deployment", "DaemonSet", "StatefulSet", "Job"}


def values(install: chart.Install) -> dict[str, Any]:
    """Return what is this cluster's own: its image and its volumes, and GPUs on its one node."""
    image, _, tag = images.GPULEASE_IMAGE.rpartition(":")
    servers = "jupyter-{username}" if install.servers else install.namespace
    return {
        "hub": {
            "config": {
                "DummyAuthenticator": {"password": PASSWORD},
                "Authenticator": {"allow_all": True, "admin_users": ["admin"]},
                # The hub is no pod here, and so does not see where it is.
                "GPULeaseSpawner": {"gpulease_namespace": install.namespace},
            }
        },
        "singleuser": {
            "image": {"name": image, "tag": tag, "pullPolicy": "Never"},
            "cmd": ["jupyterhub-singleuser"],
            "extraNodeAffinity": {"required": []},
            "extraPodConfig": names.pod_settings(servers),
            "memory": {"guarantee": "64M"},
            "storage": {
                "capacity": "1Gi",
                "dynamic": {
                    "storageClass": shipped.HOMES,
                    "storageAccessModes": ["ReadWriteMany"],
                },
            },
        },
    }


class ChartSite(Site):
    """Hub, proxy, user scheduler and lease service of one install of the chart."""

    def __init__(
        self,
        cluster: Cluster,
        directory: Path,
        install: chart.Install,
        *,
        address: str = NODE_ADDRESS,
        ours: str = "",
    ) -> None:
        """Render an install.

        Args:
            cluster: where it goes.
            directory: for its files.
            install: which.
            address: of the node; several hubs have the same ports, each at one of its own (a hub
                that is alone is at every address, and its culler calls it at localhost).
            ours: the values that gpulease's chart printed for this hub, where another release of
                it is the first one's.
        """
        ports = Ports(public=_HTTP, hub=8081, proxy=8001, service=9980, agent=0)
        super().__init__(cluster, Settings(directory, ports, secrets.token_hex(32), ""))
        self.install, self.address = install, address
        chosen = values(install)
        if "furtherHubs" in install.given or address != NODE_ADDRESS:  # one of several
            here = f'c.JupyterHub.hub_bind_url = "http://{address}:8081"'
            chosen["hub"]["extraConfig"] = {"zz-here": here}
        self.objects = chart.render(install, chosen, ours)
        self.values = {
            **install.ours,
            "secrets": {"token": self.settings.hub_token},
            "service": {"database": {"url": f"sqlite:///{directory}/own.sqlite"}},
        }
        self.encrypted = any(
            port.get("name") == "https"
            for each in self.objects
            if each["kind"] == "Service"
            for port in each["spec"]["ports"]
        )
        self.base = str(install.values.get("hub", {}).get("baseUrl", "/")).rstrip("/") + "/"

    @property
    def url(self) -> str:
        if self.encrypted:
            return f"https://{NODE_ADDRESS}:{_HTTPS}{self.base}"
        return self._at(_HTTP, self.base)

    def _at(self, port: int, path: str) -> str:
        return f"http://{self.address}:{port}{path}"

    def namespace_of(self, user: str) -> str:
        """Return where somebody's servers and leases run."""
        return f"jupyter-{user}" if self.install.servers else self.install.namespace

    def own(self, kind: str, name: str) -> Object:
        """Return one of our objects."""
        (found,) = (
            each
            for each in shipped.documents(values=self.values)
            if (each["kind"], each["metadata"]["name"]) == (kind, name)
        )
        return found

    def write_files(self) -> None:
        """Write what the containers have mounted, and how each reaches the API server."""
        directory, api = self.settings.directory, self.cluster.api
        chart.mount(self.objects, directory / "mounted")
        (directory / "resolv.conf").write_text(
            names.resolver(self.install.namespace), encoding="ascii"
        )
        account = chart.one(self.objects, "Deployment", "hub")["spec"]["template"]["spec"]
        where = (self.install.namespace, account["serviceAccountName"])
        shipped.write_kubeconfig(api, directory / "hub.kubeconfig", *where)
        service = (shipped.OWN_NAMESPACE, "gpulease")
        shipped.write_kubeconfig(api, directory / "service.kubeconfig", *service)
        scheduler = yaml.safe_load(
            chart.one(self.objects, "ConfigMap", "user-scheduler")["data"]["config.yaml"]
        )
        # The chart's image is of an older Kubernetes, whose rights are too few for this one.
        scheduler["clientConnection"] = {"kubeconfig": str(self.cluster.layout.kubeconfig)}
        (directory / "scheduler.yaml").write_text(yaml.safe_dump(scheduler), encoding="utf-8")
        settings = self.own("ConfigMap", "gpulease-service")["data"]["gpulease_config.py"]
        (directory / "service.py").write_text(
            f"{settings}\n"
            f'c.GPULeaseService.first_policy_file = "{directory}/policy.yaml"\n'
            f"c.GPULeaseService.tick = 0.5\n"
            f'c.KubernetesSettings.kubeconfig = "{directory}/service.kubeconfig"\n',
            encoding="utf-8",
        )

    def _command(self, name: str) -> list[str]:
        directory = self.settings.directory
        if name == "user-scheduler":
            program = str(build.programs_directory() / "kube-scheduler")
            options = ["--config=scheduler.yaml", "--secure-port=0"]
            return [program, *options, "--authentication-skip-lookup=true"]
        if name == "hub":
            # The chart's own arguments, but for where its files are mounted.
            arguments = [str(each) for each in self._container("hub")["args"]]
            there = arguments.index("--config") + 1
            arguments[there] = str(directory / "mounted" / Path(arguments[there]).name)
            return [sys.executable, "-m", *arguments]
        if name == "proxy":
            public = _BEHIND_TLS if self.encrypted else _HTTP
            return [
                *(sys.executable, "-m", "gpulease.demo.proxy"),
                *("--ip", self.address, "--port", str(public)),
                *("--api-ip", self.address, "--api-port", str(self.settings.ports.proxy)),
                *("--error-target", f"{self.hub_address}{self.base}hub/error"),
            ]
        return super()._command(name)

    @property
    def hub_address(self) -> str:
        """How the chart's proxy calls the hub."""
        return f"http://{chart.one(self.objects, 'Service', 'hub')['metadata']['name']}:8081"

    def _container(self, component: str) -> Object:
        pod = chart.one(self.objects, "Deployment", component)["spec"]["template"]["spec"]
        container: Object = pod["containers"][0]
        return container

    def _environment(self, name: str) -> dict[str, str]:
        if name == "service":
            deployment = self.own("Deployment", "gpulease")
            container = deployment["spec"]["template"]["spec"]["containers"][0]
            return os.environ | self._given(container, shipped.OWN_NAMESPACE)
        if name == "user-scheduler":
            return dict(os.environ)
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {
            **os.environ,
            **chart.service_ports(self.objects),
            **self._given(self._container(name), self.install.namespace),
            "KUBECONFIG": str(self.settings.directory / "hub.kubeconfig"),
            "PATH": programs,
        }

    def _given(self, container: Object, namespace: str) -> dict[str, str]:
        """Return a container's variables, those of Secrets among them."""
        found = {}
        for each in container["env"]:
            source = each.get("valueFrom", {})
            if "secretKeyRef" in source:
                key = source["secretKeyRef"]
                path = f"/api/v1/namespaces/{namespace}/secrets/{key['name']}"
                data = self.cluster.api.get(path)["data"]
                found[each["name"]] = base64.b64decode(data[key["key"]]).decode()
            else:
                found[each["name"]] = each.get("value", namespace)  # the one field: the namespace
        return found

    def _run(self, name: str, command: list[str]) -> "subprocess.Popen[bytes]":
        return super()._run(name, encryption.with_names(self.settings.directory, command))

    def _address_of(self, name: str) -> str:
        port = _BEHIND_TLS if self.encrypted else _HTTP
        if name == "service":
            return self._at(9980, f"{self.base}services/gpulease/api/health")
        # The scheduler says nothing of itself; the API server answers in its place.
        return self._at(port, f"{self.base}hub/health" if name == "hub" else "/")


@contextmanager
def charted_site(
    cluster: Cluster,
    directory: Path,
    install: chart.Install,
    policy: str,
) -> Iterator[ChartSite]:
    """Install chart and gpulease as documented, and start all; everything goes afterwards."""
    api, site = cluster.api, ChartSite(cluster, directory, install)
    (directory / "policy.yaml").write_text(policy, encoding="utf-8")
    shipped.apply(api, values=site.values)
    if install.servers:
        shipped.apply(api, shipped.USER_NAMESPACES, site.values)
    clear(api, install.namespace)
    shipped.add_volumes(api, cluster.layout.volumes)
    tools = yaml.safe_load(
        base64.b64decode(chart.one(site.objects, "Secret", "hub")["data"]["values.yaml"])
    )["singleuser"]["networkTools"]["image"]
    cluster.import_images([images.network_tools(f"{tools['name']}:{tools['tag']}")])
    with contextlib.ExitStack() as made:
        made.enter_context(_created(api, _applied(site)))
        made.enter_context(names.answering(api))
        made.enter_context(names.given(api, "gpulease", shipped.OWN_NAMESPACE, 9980))
        site.write_files()
        if site.encrypted:
            made.enter_context(_tls(site))
        made.callback(clear, api, install.namespace)
        made.callback(site.stop)
        for name in ("proxy", "user-scheduler", "hub", "service"):
            site.start(name)
        yield site


@contextmanager
def further_hub(
    cluster: Cluster, directory: Path, install: chart.Install, ours: str, address: str
) -> Iterator[ChartSite]:
    """Install the chart once more, for people of the service of another release that runs.

    What the service needs to know of it, and its namespace, are there already; so is `address`.
    """
    site = ChartSite(cluster, directory, install, ours=ours, address=address)
    site.service, site.prefix = f"gpulease-{install.release}", f"{install.release}/"
    with contextlib.ExitStack() as made:
        made.enter_context(_created(cluster.api, _applied(site)))
        site.write_files()
        made.callback(clear, cluster.api, install.namespace)
        made.callback(site.stop)
        for name in ("proxy", "user-scheduler", "hub"):
            site.start(name)
        yield site


@contextmanager
def _created(api: Api, documents: Iterable[Object]) -> Iterator[None]:
    """Create what is not there; it goes afterwards."""
    with contextlib.ExitStack() as made:
        for document in documents:
            if api.find(path_of(document)) is None:
                api.create(document)
                made.callback(api.delete, path_of(document))
        yield


def _applied(site: ChartSite) -> Iterator[Object]:
    for each in site.objects:
        hooked = "helm.sh/hook" in (each["metadata"].get("annotations") or {})
        if hooked or each["kind"] in _NOT_APPLIED:
            continue
        yield each
        if each["kind"] == "Service":
            meta, ports = each["metadata"], each["spec"]["ports"]
            shown = [{"name": port.get("name", ""), "port": port["port"]} for port in ports]
            yield names.at_the_node(meta["name"], meta["namespace"], shown, site.address)


@contextmanager
def _tls(site: ChartSite) -> Iterator[None]:
    """Speak TLS at the public port, and redirect http requests there with a 301."""
    directory, authority = site.settings.directory, Authority.new()
    pair = directory / "public.pem"
    pair.write_bytes(authority.server(NODE_ADDRESS))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair)
    site.tls = ssl.create_default_context(cadata=authority.pem())
    started, ended = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def listen() -> None:
        loops.append(asyncio.get_running_loop())
        relay = Relay(NODE_ADDRESS, _BEHIND_TLS)
        async with (
            await asyncio.start_server(relay.serve, NODE_ADDRESS, _HTTPS, ssl=context),
            await asyncio.start_server(_redirect, NODE_ADDRESS, _HTTP),
        ):
            started.set()
            await ended.wait()
        await relay.end()

    thread = threading.Thread(target=lambda: asyncio.run(listen()), daemon=True)
    thread.start()
    assert started.wait(60)
    try:
        yield
    finally:
        loops[0].call_soon_threadsafe(ended.set)
        thread.join(60)


async def _redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer as the chart's proxy does at its port for http."""
    path = (await reader.readline()).split()[1].decode("latin-1")
    lines = f"HTTP/1.1 301 Moved\r\nLocation: https://{NODE_ADDRESS}:{_HTTPS}{path}"
    writer.write(f"{lines}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode("latin-1"))
    writer.close()
    await writer.wait_closed()
