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

CHARTS = "https://hub.jupyter.org/helm-chart/"
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


@pytest.mark.cluster
@pytest.mark.timeout(600)
@chart.needs_chart
@pytest.mark.skipif(chart.kubectl() is None, reason="kubectl is not built (make setup-cluster)")
def test_every_command_of_the_page_works_and_leaves_nothing(cluster, tmp_path):
    """Images are built by `make test-images`; here podman only says what it was asked for."""
    from testcluster import images
    from testcluster.pods import new_namespace

    work, programs = tmp_path / "checkout", tmp_path / "programs"
    shutil.copytree(shipped.ROOT, work / "helm-values")
    programs.mkdir()
    helm, kubectl = chart.helm(), chart.kubectl()
    assert helm
    assert kubectl
    (programs / "helm").symlink_to(helm)
    (programs / "kubectl").symlink_to(kubectl)
    (programs / "gpulease").write_text(f'#!/bin/sh\nexec {sys.executable} -m gpulease "$@"\n')
    (programs / "podman").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/podman\n')
    for name in ("gpulease", "podman"):
        (programs / name).chmod(0o755)
    for name in ("your-values.yaml", "your-values-of-lab2.yaml"):
        (work / name).write_text(
            yaml.safe_dump({"prePuller": {"hook": {"enabled": False}}}), encoding="utf-8"
        )
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

    # What other tests have left.
    run(
        "gpulease uninstall --yes", f"kubectl delete namespace {shipped.SERVERS} --ignore-not-found"
    )
    gone = partial(_gone, cluster.api)
    gone()
    new_namespace(cluster.api, shipped.SERVERS)
    before = objects(cluster.api)
    commands = shipped.page("Install")
    assert 5 < len(commands) <= 10, "no more than ten commands to the first lease"
    database = cluster.layout.volumes / "database"
    database.mkdir()
    database.chmod(0o777)  # the service is not root, and this is no volume whose owner changes
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "for-the-database"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(database)},
            "claimRef": {"namespace": shipped.SYSTEM, "name": "gpulease-database"},
        },
    }
    cluster.api.create(volume)
    try:
        with charts(tmp_path, helm) as address:
            # In one shell, as somebody types them: a variable is used further down.
            run(*(each.replace(CHARTS, address) for each in commands))
            asked = (tmp_path / "podman").read_text(encoding="utf-8")
            assert f"push {SERVICE}" in asked
            _a_further_hub(run)
            said = run("gpulease uninstall")
            assert "would remove: deployments gpulease in gpulease-system" in said
            made = objects(cluster.api) - before
            assert f"namespaces /{shipped.SERVERS} with our label" in made
            assert len(made) > 30
            run(*shipped.page("Remove"))
            run("helm uninstall jupyterhub --namespace jupyterhub --wait")
    finally:
        run("helm uninstall jupyterhub --namespace jupyterhub --ignore-not-found")
        run("helm uninstall lab2 --namespace lab2 --ignore-not-found --wait")
        run("gpulease uninstall --yes", "kubectl delete namespace lab2 --ignore-not-found")
        cluster.api.delete("/api/v1/persistentvolumes/for-the-database")
        shutil.rmtree(database)
    gone()
    after = objects(cluster.api)
    assert after - before <= _KEPT, after - before
    assert before - after == set()


def _a_further_hub(run: Callable[..., str]) -> None:
    """Install one beside the first, and see that nothing but the hubs themselves is missing."""
    run(*shipped.page("Several hubs"))
    service = "--namespace gpulease-system"
    run(f"kubectl {service} rollout status deployment/gpulease")
    doctor = "gpulease doctor --config /etc/gpulease/gpulease_config.py --json"
    said = run(f"kubectl {service} exec deployment/gpulease -- {doctor} || true")
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    for check in ("rights", "least_rights", "admission", "network"):
        states = [each["state"] for each in found if each["check"] == check]
        assert states == ["ok", "ok"], f"{check} in both namespaces: {found}"
    assert [each["state"] for each in found if each["check"] == "namespaces"] == ["ok"]
    wrong = {each["check"] for each in found if each["state"] == "wrong"}
    assert "hub lab2" in wrong  # its programs do not run here
    assert wrong <= {"hub", "hub lab2", "agents"}, found
    values = run("helm get values lab2 --namespace lab2 --output yaml")
    assert 'service_name="gpulease-lab2",' in values


def _gone(api) -> None:
    from testcluster.pods import wait_until_gone

    wait_until_gone(api, f"/api/v1/namespaces/{shipped.SYSTEM}")
