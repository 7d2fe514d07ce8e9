"""`gpulease doctor` on a real API server: quiet when all is there, and each fault by its name."""

import contextlib
import copy
import json
import re
import time
from pathlib import Path

import pytest

from gpulease.commands.doctor import look, run
from gpulease.errors import GPULeaseError
from gpulease.hub.scopes import SERVICE_SCOPES
from gpulease.providers.kubernetes.checkup import checkup
from gpulease.system.loopback_ports import free_port
from testcluster import rights
from tests.helm_values import shipped
from tests.helm_values.conftest import Installed
from tests.helpers import wait_for, wait_for_async

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def test_it_asks_for_the_shipped_rights_and_no_other():
    needed = {("service/rights.yaml", need) for need in checkup.NEEDS}
    needed |= {
        ("user-namespaces/service.yaml", (verb, "", kind, False))
        for kind in checkup.WIDE
        for verb in ("list", "watch")
    }
    granted = {
        (file, (grant.verb, grant.group, grant.resource, bool(grant.namespace)))
        for file in ("service/rights.yaml", "user-namespaces/service.yaml")
        for each in rights.given(shipped.load(file), "gpulease")
        for grant in each.grants()
    }
    assert needed == granted
    assert len(checkup.NEEDS) == len(set(checkup.NEEDS))


async def test_a_cluster_that_is_away_is_named(tmp_path):
    with pytest.raises(GPULeaseError, match="API server does not answer") as refused:
        await look(config_of(tmp_path, kubeconfig(tmp_path, free_port()), "a", "b"), {})
    assert refused.value.next_step


def test_a_hub_that_is_away_or_whose_clock_differs_is_named():
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    from gpulease.commands.doctor import _hub

    class Slow(BaseHTTPRequestHandler):
        late = 0

        def do_GET(self):
            self.send_response_only(403)
            when = time.time() - self.late
            self.send_header("Date", self.date_time_string(when))
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Slow)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/hub/api"
        assert _hub({"JUPYTERHUB_API_URL": url}).state == "ok"
        Slow.late = 90
        wrong = _hub({"JUPYTERHUB_API_URL": url})
        assert (wrong.check, wrong.state) == ("clock", "wrong")
        assert "time server" in wrong.next_step
    finally:
        server.shutdown()
        server.server_close()
    assert _hub({"JUPYTERHUB_API_URL": url}).state == "wrong"
    assert _hub({}).state == "unknown"


def test_whether_whole_notebooks_can_run_is_told_by_what_the_service_may():
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    from gpulease.commands.doctor import _runs

    class Hub(BaseHTTPRequestHandler):
        scopes: tuple[str, ...] = SERVICE_SCOPES

        def do_GET(self):
            known = self.headers["Authorization"] == "token right" and self.path == "/hub/api/user"
            self.send_response(200 if known else 403)
            self.end_headers()
            self.wfile.write(json.dumps({"scopes": self.scopes}).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    given = {
        "JUPYTERHUB_API_URL": f"http://127.0.0.1:{server.server_port}/hub/api",
        "JUPYTERHUB_API_TOKEN": "right",
    }
    try:
        off = _runs(given)
        assert (off.check, off.state) == ("runs", "ok")
        assert "whole_notebooks=True" in off.next_step
        Hub.scopes = (*SERVICE_SCOPES, "servers")
        assert "may start" in _runs(given).sentence
        other = _runs({**given, "JUPYTERHUB_API_TOKEN": "old"})
        assert (other.state, "403" in other.sentence) == ("wrong", True)
        Hub.scopes = SERVICE_SCOPES[1:]  # as another version of gpulease at the hub may have it
        older = _runs(given)
        assert (older.state, f"not {SERVICE_SCOPES[0]} at" in older.sentence) == ("wrong", True)
        assert "old" not in other.sentence
    finally:
        server.shutdown()
        server.server_close()
    assert _runs(given).state == "unknown"
    assert _runs({}).state == "unknown"


def kubeconfig(directory: Path, port: int) -> Path:
    file = directory / "nowhere.kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "x", "user": {"token": "for-this-test-only"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    }
    file.write_text(json.dumps(document))
    return file


def config_of(directory: Path, kubeconfig: Path, servers: str, system: str, **more: str) -> str:
    file = directory / "service.py"
    settings = {
        "kubeconfig": str(kubeconfig),
        "namespaces": [servers],
        "lease_service_url": "http://198.18.0.1:9980/services/gpulease/",
        "agent_account": f"{system}/gpulease-agent",
        "image": "quay.io/jupyter/base-notebook",
        "priority_class": f"gpulease-lease-{system}",
        **more,
    }
    lines = [f"c.KubernetesSettings.{name} = {value!r}" for name, value in settings.items()]
    file.write_text("\n".join(["c = get_config()", *lines]))
    return str(file)


@pytest.fixture
def doctor(installed: Installed, tmp_path):
    """Look with the service's own account; settings may be changed."""
    file = tmp_path / "kubeconfig"
    document = json.loads(installed.api.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": installed.service.token}
    file.write_text(json.dumps(document))

    async def states(environment=None, **more):
        config = config_of(tmp_path, file, installed.servers, installed.system, **more)
        return {each.check: each for each in await look(config, environment or {})}

    states.arguments = config_of(tmp_path, file, installed.servers, installed.system)
    return states


async def settled(doctor, check, state, **more):
    """Wait until a check stands so: rights and policies are known some time after a change."""

    async def found():
        result = (await doctor(**more))[check]
        assert result.state == state, str(result)
        return result

    result = await wait_for_async(found, 120, f"{check} is {state}")
    if state == "wrong":
        assert result.next_step
    return result


@contextlib.contextmanager
def without(api, path):
    """Take an object away for a block."""
    document = copy.deepcopy(api.get(path))
    for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
        document["metadata"].pop(field, None)
    api.delete(path)
    try:
        yield
    finally:
        api.create(document)


SERVICE = {"JUPYTERHUB_CLIENT_ID": "service-gpulease"}


@pytest.mark.parametrize(
    ("said", "environment", "state"),
    [
        ({}, SERVICE, "warning"),
        ({}, SERVICE | {"JUPYTERHUB_HOST": "https://hub.example.org"}, "ok"),
        ({}, {}, "unknown"),
        ({}, {"JUPYTERHUB_CLIENT_ID": "jupyterhub-user-stu"}, "unknown"),
        ({"user_domains": True}, {}, "ok"),
        ({"user_domains": False}, {}, "warning"),
        ({"user_domains": False}, SERVICE | {"JUPYTERHUB_HOST": "https://hub"}, "warning"),
        ({"trusted_servers": True}, {}, "ok"),
    ],
)
def test_pages_that_share_the_hubs_origin_are_warned_of(said, environment, state, monkeypatch):
    """What is said is of the service, whose environment doctor's process need not have."""
    from traitlets.config import Config

    from gpulease.commands.doctor import _pages
    from gpulease.service.settings.application import GPULeaseService

    monkeypatch.setenv("JUPYTERHUB_HOST", "https://of.this.very.process")
    found = _pages(GPULeaseService(config=Config({"GPULeaseService": said})), environment)
    assert found.state == state
    assert bool(found.next_step) == (state != "ok")


@pytest.mark.cluster
async def test_a_whole_installation_is_all_right(doctor, installed):
    for check in ("rights", "least_rights", "lease_pod", "admission", "servers", "network"):
        await settled(doctor, check, "ok")
    found = await doctor()
    assert found["volumes"].state == "unknown"  # no server yet
    assert "only a lease shows" in found["network"].sentence
    assert found["hub"].state == "unknown"


@pytest.mark.cluster
async def test_several_nodes_are_allowed_within_their_bounds_or_not_at_all(doctor, installed):
    from testcluster.api import path_of

    off = await settled(doctor, "several_nodes", "ok")
    assert "refused" in off.sentence
    made = installed.load("several-nodes/bounds.yaml", "several-nodes/rights.yaml")
    bounds = [each for each in made if each["kind"].startswith("ValidatingAdmissionPolicy")]
    for each in [each for each in made if each not in bounds]:
        installed.api.create(each)
    wrong = await settled(doctor, "several_nodes", "wrong")
    assert "any network policy" in wrong.sentence
    assert "severalNodes.enabled" in wrong.next_step
    for each in bounds:
        installed.api.create(each)
    try:
        on = await settled(doctor, "several_nodes", "ok")
        assert "may talk" in on.sentence
    finally:
        for each in made:
            installed.api.delete(path_of(each))


@pytest.mark.cluster
async def test_missing_rights_are_named(doctor, installed):
    names = [
        each["metadata"]["name"]
        for each in installed.api.items(f"{RBAC}/namespaces/{installed.servers}/rolebindings")
    ]
    path = f"{RBAC}/namespaces/{installed.servers}/rolebindings/{names[0]}"
    with without(installed.api, path):
        wrong = await settled(doctor, "rights", "wrong")
        assert f"create pods in {installed.servers}" in wrong.sentence
    await settled(doctor, "rights", "ok")


@pytest.mark.cluster
async def test_more_rights_than_needed_are_named(doctor, installed):
    metadata = {"name": "too-much", "namespace": installed.servers}
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    subject = {"kind": "ServiceAccount", "name": "gpulease", "namespace": installed.system}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "too-much"}
    version = "rbac.authorization.k8s.io/v1"
    installed.api.create(
        {"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": [rule]}
    )
    installed.api.create(
        {
            "apiVersion": version,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": [subject],
        }
    )
    try:
        wrong = await settled(doctor, "least_rights", "wrong")
        assert "get secrets" in wrong.sentence
    finally:
        installed.api.delete(f"{RBAC}/namespaces/{installed.servers}/rolebindings/too-much")
    await settled(doctor, "least_rights", "ok")


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("runtime_class", "no-such-runtime", "no-such-runtime"),
        ("priority_class", "no-such-priority", "no-such-priority"),
        ("service_account", "no-such-account", "no-such-account"),
        ("image", "evil.example/x", "images: "),
    ],
)
async def test_what_keeps_lease_pods_out_is_named(doctor, setting, value, words):
    wrong = await settled(doctor, "lease_pod", "wrong", **{setting: value})
    assert words in wrong.sentence or "account: " in wrong.sentence


@pytest.mark.cluster
async def test_a_policy_that_is_not_in_force_is_named(doctor, installed):
    name = f"gpulease-lease-pods-{installed.system}"
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/"
    with without(installed.api, path + name):
        wrong = await settled(doctor, "admission", "wrong")
        assert "could mount any Secret" in wrong.sentence
    await settled(doctor, "admission", "ok")


@pytest.mark.cluster
async def test_servers_that_could_have_a_gpu_are_named(doctor, installed):
    name = f"gpulease-no-gpu-{installed.system}"
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/"
    await settled(doctor, "servers", "ok")
    with without(installed.api, path + name):
        wrong = await settled(doctor, "servers", "wrong")
        assert "gpulease-no-gpu is not in force" in wrong.sentence
        assert f"kubectl label namespace {installed.servers} gpulease/instance=" in wrong.next_step
    await settled(doctor, "servers", "ok")
    # What was not taken at all was not tried.
    await settled(doctor, "servers", "unknown", runtime_class="no-such-runtime")


@pytest.mark.cluster
async def test_network_policies_that_are_missing_or_wrong_are_named(doctor, installed):
    path = f"/apis/networking.k8s.io/v1/namespaces/{installed.servers}/networkpolicies"
    with without(installed.api, f"{path}/gpulease-lease"):
        wrong = await settled(doctor, "network", "wrong")
        assert "bounds what lease pods may be reached by" in wrong.sentence
    closed = {"podSelector": {}, "policyTypes": ["Egress"], "egress": []}
    await settled(doctor, "network", "ok")
    metadata = {"name": "closed", "namespace": installed.servers}
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    installed.api.create({**kind, "metadata": metadata, "spec": closed})
    try:
        wrong = await settled(doctor, "network", "wrong")
        assert "Servers of" in wrong.sentence
        assert "closed" in wrong.sentence
        assert "gpulease's chart" in wrong.next_step
    finally:
        installed.api.delete(f"{path}/closed")
    await settled(doctor, "network", "ok")


@pytest.mark.cluster
async def test_namespaces_of_a_pattern_are_those_in_which_servers_run(doctor, installed):
    from testcluster.pods import delete_namespace, new_namespace

    name = f"{installed.servers}-own-ada"
    pattern = f"{installed.servers}-own-*"
    none = await settled(doctor, "namespaces", "unknown", namespaces=[pattern])
    assert "No server runs" in none.sentence
    new_namespace(installed.api, name)
    marks = {"component": "singleuser-server", "gpulease/instance": "gpulease"}
    metadata = {"name": "jupyter-ada", "namespace": name, "labels": marks}
    spec = {"containers": [{"name": "notebook", "image": "x"}]}
    try:
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        installed.api.create(body)
        wrong = await settled(doctor, "rights", "wrong", namespaces=[pattern])
        assert f"create pods in {name}" in wrong.sentence
        assert "userNamespaces.enabled" in wrong.next_step
        wide = await settled(doctor, "namespaces", "wrong", namespaces=[pattern])
        assert "list events" in wide.sentence
        assert "userNamespaces.enabled" in wide.next_step
    finally:
        delete_namespace(installed.api, name)


@pytest.mark.cluster
async def test_a_node_without_an_agent_is_named(doctor, installed):
    from testcluster.configuration import PAUSE_IMAGE

    async def lacking():
        """How many nodes lack an agent, beside those that other tests let kwok play."""
        played = len(installed.api.items("/api/v1/nodes", labelSelector="type=kwok"))
        sentence = (await doctor())["agents"].sentence
        named = sentence.partition("runs on ")[2].partition(":")[0]
        more = re.search(r" and (\d+) more", named)
        listed = len(named.partition(" and ")[0].split(", ")) if "No agent" in sentence else 0
        return listed + (int(more[1]) if more else 0) - played

    await wait_for_async(lambda: _is(lacking, 1), 120, "the node lacks an agent")
    # The shipped DaemonSet with an image, a directory and a runtime that this cluster has.
    container = {"name": "agent", "image": PAUSE_IMAGE, "imagePullPolicy": "Never"}
    volume = {"name": "pod-resources", "hostPath": {"path": "/", "type": ""}}
    spec = {"containers": [container], "volumes": [volume], "runtimeClassName": None}
    installed.api.patch(
        f"/apis/apps/v1/namespaces/{installed.system}/daemonsets/gpulease-agent",
        {"spec": {"template": {"spec": spec}}},
        "strategic-merge",
    )
    await wait_for_async(lambda: _is(lacking, 0), 120, "the node has an agent")


async def _is(asked, number):
    return await asked() == number


@pytest.mark.cluster
async def test_homes_for_one_node_are_counted(doctor, installed):
    metadata = {"name": "claim-stu", "namespace": installed.servers}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    installed.api.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": {**spec, "storageClassName": "none"},
        }
    )
    volumes = [{"name": "home", "persistentVolumeClaim": {"claimName": "claim-stu"}}]
    installed.api.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "jupyter-stu",
                "namespace": installed.servers,
                "labels": {"component": "singleuser-server"},
            },
            "spec": {"volumes": volumes, "containers": [{"name": "notebook", "image": "x"}]},
        }
    )
    found = await settled(doctor, "volumes", "ok")
    assert "1 of 1 claims" in found.sentence


@pytest.mark.cluster
def test_the_command_says_what_is_wrong_and_how_to_mend_it(doctor, installed):
    import argparse

    lines: list[str] = []
    arguments = argparse.Namespace(config=doctor.arguments, json=True, hub=None)

    def rights_known():
        lines.clear()
        status = run(arguments, lines.append)
        found = {json.loads(line)["check"]: json.loads(line) for line in lines}
        return status in {0, 1} and found["rights"]["state"] == "ok"

    wait_for(rights_known, 120, "the rights are known")
    assert {"check", "state", "sentence", "next_step"} == set(json.loads(lines[0]))
