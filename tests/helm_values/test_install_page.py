"""The documented way from an empty cluster to a running service, and back: each command is run."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from tests.helm_values import shipped
from tests.hub import chart

SERVICE = "registry.example.edu/lab/gpulease-service:0.1.0"
#: What comes and goes by itself, or is the API server's own.
_PASSING = {"events", "leases", "endpoints", "endpointslices", "controllerrevisions", "apiservices"}
#: The chart's own, which helm keeps for whoever comes back.
_KEPT = {"persistentvolumeclaims jupyterhub/hub-db-dir"}


@contextmanager
def charts(directory: Path, helm: str) -> Iterator[str]:
    """Serve the chart as a repository of charts; yield its address."""
    source = os.environ["GPULEASE_CHART"]
    subprocess.run([helm, "package", source, "--destination", str(directory)], check=True)
    subprocess.run([helm, "repo", "index", str(directory)], check=True)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(directory))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join(60)


def objects(api) -> set[str]:
    """Return everything that the API server holds, but what passes."""
    groups = ["/api/v1"]
    groups += [
        f"/apis/{each['preferredVersion']['groupVersion']}" for each in api.get("/apis")["groups"]
    ]
    found = set()
    for group in groups:
        for kind in api.get(group)["resources"]:
            name = kind["name"]
            if "/" in name or "list" not in kind["verbs"] or name in _PASSING:
                continue
            for each in api.items(f"{group}/{name}"):
                meta = each["metadata"]
                labelled = "gpulease/instance" in (meta.get("labels") or {})
                mark = " with our label" if labelled and name == "namespaces" else ""
                found.add(f"{name} {meta.get('namespace', '')}/{meta['name']}{mark}")
    return found


Run = Callable[..., str]


@pytest.fixture
def shell(cluster, tmp_path) -> Iterator[Run]:
    """Run commands of the page in a checkout, with helm and kubectl of this cluster's."""
    from testcluster import images

    work, programs = tmp_path / "checkout", tmp_path / "programs"
    shutil.copytree(shipped.CHART, work / "chart")
    programs.mkdir()
    for name, program in (("helm", chart.helm()), ("kubectl", chart.kubectl())):
        assert program
        (programs / name).symlink_to(program)
    # Images are built by `make test-images`; here podman only says what it was asked for.
    for name, script in (
        ("gpulease", f'exec {sys.executable} -m gpulease "$@"'),
        ("podman", f'echo "$@" >> {tmp_path}/podman'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    site = yaml.safe_dump({"prePuller": {"hook": {"enabled": False}}})
    for name in ("your-values.yaml", "your-values-of-lab2.yaml"):
        (work / name).write_text(site, encoding="utf-8")
    own = images.images(with_service=True)[-1]
    cluster.import_images([replace(own, name=SERVICE, command=["/opt/venv/bin/gpulease"])])
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "KUBECONFIG": str(cluster.layout.kubeconfig),
        **{f"HELM_{each}_HOME": f"{tmp_path}/{each}" for each in ("CACHE", "CONFIG", "DATA")},
    }

    def run(*commands: str) -> str:
        done = subprocess.run(
            ["sh", "-ec", "\n".join(commands)],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{commands}:\n{done.stdout}{done.stderr}"
        return done.stdout

    with charts(tmp_path, str(chart.helm())) as address:
        run(f"helm repo add jupyterhub {address}")
        yield run


@contextmanager
def database(cluster) -> Iterator[None]:
    """Give the service's claim a volume: no class of this cluster makes one."""
    directory = cluster.layout.volumes / "database"
    directory.mkdir()
    directory.chmod(0o777)  # the service is not root, and this is no volume whose owner changes
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "for-the-database"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(directory)},
            "claimRef": {"namespace": shipped.SYSTEM, "name": "gpulease-database"},
        },
    }
    cluster.api.create(volume)
    try:
        yield
    finally:
        cluster.api.delete("/api/v1/persistentvolumes/for-the-database")
        shutil.rmtree(directory)


@pytest.mark.cluster
@pytest.mark.timeout(600)
@chart.needs_chart
@pytest.mark.skipif(chart.kubectl() is None, reason="kubectl is not built (make setup-cluster)")
def test_every_command_of_the_page_works_and_leaves_nothing(cluster, shell: Run, tmp_path):
    """Three commands install it beside a hub; a further hub; the way back."""
    api, hub = cluster.api, f"--namespace {shipped.SERVERS}"
    _clean(shell, api)
    shell(f"helm install jupyterhub jupyterhub/jupyterhub {hub} --create-namespace"
          " --values your-values.yaml")  # fmt: skip
    images, (install, values, doctor) = (
        shipped.page(each, "install-kubernetes.md") for each in ("Before you begin", "Install")
    )
    before = objects(api)
    try:
        with database(cluster):
            shell(*images)
            assert f"push {SERVICE}" in (tmp_path / "podman").read_text(encoding="utf-8")
            notes = shell(install)
            _what_is_missing_is_named(notes)
            shell(f"kubectl {OURS} rollout status deployment/gpulease")
            shell(values)
            tokens = _tokens(api)
            shell(install)
            assert _tokens(api) == tokens, "an upgrade keeps the token"
            _only_the_hubs_programs_are_missing(shell, doctor, {"hub", "agents"})
            _a_test_of_the_release_says_the_same(shell)
            shell(*shipped.page("Several hubs"))
            shell(f"kubectl {OURS} rollout status deployment/gpulease")
            _only_the_hubs_programs_are_missing(shell, doctor, {"hub", "hub lab2", "agents"})
            assert _tokens(api) == tokens
            assert len(objects(api) - before) > 30
            shell("helm uninstall lab2 --namespace lab2 --wait", "kubectl delete namespace lab2")
            remove = shipped.page("Remove")
            assert "would remove: persistentvolumeclaims gpulease-database" in shell(*remove[:3])
            shell(*remove[3:])
    finally:
        shell("helm uninstall lab2 --namespace lab2 --ignore-not-found --wait")
        shell("kubectl delete namespace lab2 --ignore-not-found")
        _clean(shell, api)
    after = objects(api)
    left = {each for each in after - before if not each.startswith("secrets jupyterhub/sh.helm")}
    assert left <= _KEPT, left


OURS = f"--namespace {shipped.SYSTEM}"


def _clean(shell: Run, api) -> None:
    """Remove what this test or another has left."""
    shell(f"helm uninstall gpulease {OURS} --ignore-not-found --wait")
    shell(
        "gpulease uninstall --yes", f"kubectl delete namespace {shipped.SYSTEM} --ignore-not-found"
    )
    shell(f"helm uninstall jupyterhub --namespace {shipped.SERVERS} --ignore-not-found --wait")
    shell(f"kubectl delete namespace {shipped.SERVERS} --ignore-not-found")
    _gone(api)


def _tokens(api) -> dict[str, str]:
    """Return the first hub's token as each side has it."""
    found = {}
    for namespace, name in (
        (shipped.SYSTEM, "gpulease-service"),
        (shipped.SERVERS, "gpulease-hub"),
    ):
        data = api.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")["data"]
        found[name] = data["hub-token"]
    assert len(set(found.values())) == 1
    return found


def _what_is_missing_is_named(notes: str) -> None:
    missing = notes.partition("Missing:")[2].partition("Next,")[0]
    for words in ("no RuntimeClass nvidia", "No network was recognised", "no default StorageClass"):
        assert words in missing, notes
    assert "No node offers a GPU" not in missing
    assert "no Service" not in missing
    for command in shipped.page("Install", "install-kubernetes.md")[1:]:
        assert command.split(" -")[0] in notes


def _only_the_hubs_programs_are_missing(shell: Run, doctor: str, may_lack: set[str]) -> None:
    said = shell(f"{doctor} --json || true")
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    for check in ("rights", "least_rights", "admission", "network"):
        states = {each["state"] for each in found if each["check"] == check}
        assert states == {"ok"}, f"{check}: {found}"
    wrong = {each["check"] for each in found if each["state"] == "wrong"}
    assert wrong <= may_lack, found  # they are not run here
    assert ("hub lab2" in wrong) == ("hub lab2" in may_lack)


def _a_test_of_the_release_says_the_same(shell: Run) -> None:
    """It fails here for the hub, which does not run, and its log says so."""
    assert "FAILED" in shell(f"helm test gpulease {OURS} || echo FAILED")
    said = shell(f"kubectl {OURS} logs gpulease-doctor")
    assert "ok       least_rights" in said
    assert "WRONG    hub" in said


def _gone(api) -> None:
    from testcluster.pods import wait_until_gone

    for name in (shipped.SYSTEM, shipped.SERVERS):
        wait_until_gone(api, f"/api/v1/namespaces/{name}")
