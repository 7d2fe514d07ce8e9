"""Spawners of the real KubeSpawner, up to the moment at which the pod would be sent."""

import json
import ssl

import pytest
from jinja2 import Environment

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: nowhere, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {token: for-this-test-only}}]
contexts: [{name: here, context: {cluster: nowhere, user: nobody}}]
current-context: here
"""


_COMPILE, _COMPILED = Environment.compile, dict[tuple[object, ...], object]()


def _compiled_once(environment, *words, **options):
    key = (*words, *sorted(options.items()))
    if key not in _COMPILED:
        _COMPILED[key] = _COMPILE(environment, *words, **options)
    return _COMPILED[key]


class SentError(Exception):
    """The pod would be sent now: carries it as the API server would read it."""

    def __init__(self, pod, model):
        super().__init__("the pod was sent")
        self.pod = pod
        self.model = model


@pytest.fixture
def no_cluster(tmp_path, monkeypatch):
    """KubeSpawner finds a configuration of a cluster that does not answer."""
    kube_config = pytest.importorskip("kubernetes_asyncio.config.kube_config")
    from kubespawner import clients

    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    # Half of what a spawner takes to be made: the machine's certificates, for nobody, and the form.
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: None)
    monkeypatch.setattr(Environment, "compile", _compiled_once)
    clients.load_config.cache_clear()
    yield
    clients.load_config.cache_clear()


class Groups:
    """A person of the hub, as far as a spawner asks."""

    def __init__(self, name="stu", groups=()):
        self.name = name
        self.escaped_name = name
        self.id = 1
        self.url = self.base_url = f"/user/{name}/"
        self.groups = [type("Group", (), {"name": group})() for group in groups]


def stopping_before_the_cluster(spawner_class):
    """``spawner_class`` whose start runs whole until the pod is sent, and raises ``SentError``."""

    class Stopping(spawner_class):
        async def _start_watching_pods(self, replace=False):
            pass

        async def _start_watching_events(self, replace=False):
            pass

        async def _ensure_namespace(self):
            pass

        async def _make_create_pod_request(self, pod, request_timeout):
            sent = self.api.api_client.sanitize_for_serialization(pod)
            raise SentError(json.loads(json.dumps(sent)), pod)

    return Stopping


@pytest.fixture
async def make_spawner(no_cluster):
    """Make spawners; ``start(spawner, **user_options)`` gives the pod as it would be sent."""
    from gpulease.hub import GPULeaseSpawner

    clients = []

    def make(config=None, *, user=None, name="", spawner_class=GPULeaseSpawner, **settings):
        from jupyterhub import orm
        from traitlets.config import Config

        spawner = stopping_before_the_cluster(spawner_class)(
            _mock=True,
            config=config or Config(),
            user=user or Groups(),
            orm_spawner=orm.Spawner(name=name),
            **{"events_enabled": False, "storage_pvc_ensure": False, **settings},
        )
        clients.append(spawner.api.api_client)
        return spawner

    yield make
    for client in clients:
        await client.close()


async def start(spawner, **user_options):
    """Do what the hub does at a spawn, until the pod is sent; return the pod."""
    spawner.user_options = user_options
    spawner.clear_state()
    await spawner.apply_group_overrides()
    try:
        await spawner.start()
    except SentError as sent:
        return sent.pod
    raise AssertionError("no pod was sent")
