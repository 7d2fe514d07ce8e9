"""The cluster runs pods from this machine's files, connects them and forgets them."""

import http.server
import threading

import pytest

from testcluster.api import Object
from testcluster.cluster import Cluster
from testcluster.layout import NODE_ADDRESS
from testcluster.pods import pod, wait_for_phase, wait_until_gone
from tests.helpers import wait_for

pytestmark = pytest.mark.cluster


def test_pod_runs_this_checkouts_gpulease(cluster: Cluster, namespace: str) -> None:
    script = "import gpulease, gpulease.companion, jupyter_server, numpy; print('imported')"
    cluster.api.create(pod(namespace, "importer", "python", "-W", "error", "-c", script))
    wait_for_phase(cluster.api, namespace, "importer", "Succeeded")
    assert cluster.api.logs(namespace, "importer").strip() == "imported"


def test_pods_and_the_machine_reach_each_other(cluster: Cluster, namespace: str) -> None:
    """A process of the test serves a pod, and a pod's port answers the test's process."""
    with http.server.ThreadingHTTPServer((NODE_ADDRESS, 0), _Hello) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://{NODE_ADDRESS}:{server.server_port}/"
        script = (
            f"import urllib.request as r; print(r.urlopen({url!r}, timeout=30).read().decode())"
        )
        cluster.api.create(pod(namespace, "caller", "python", "-c", script))
        wait_for_phase(cluster.api, namespace, "caller", "Succeeded")
        server.shutdown()
    assert cluster.api.logs(namespace, "caller").strip() == "hello"


class _Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Write nothing."""


def test_pod_goes_with_its_owner(cluster: Cluster, namespace: str) -> None:
    """The garbage collector is real: it is what ends a lease pod when its server's pod goes."""
    owner = cluster.api.create(pod(namespace, "owner"))
    owned = pod(namespace, "owned")
    owned["metadata"]["ownerReferences"] = [_reference(owner)]
    cluster.api.create(owned)
    wait_for_phase(cluster.api, namespace, "owned")
    cluster.api.delete(f"/api/v1/namespaces/{namespace}/pods/owner")
    wait_until_gone(cluster.api, f"/api/v1/namespaces/{namespace}/pods/owned")


def _reference(owner: Object) -> Object:
    metadata = owner["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "blockOwnerDeletion": False,
    }


def test_deadline_ends_a_pod(cluster: Cluster, namespace: str) -> None:
    brief = pod(namespace, "brief")
    brief["spec"]["activeDeadlineSeconds"] = 2
    cluster.api.create(brief)
    ended = wait_for_phase(cluster.api, namespace, "brief", "Failed")
    assert ended["status"]["reason"] == "DeadlineExceeded"


def test_missing_image_is_said_in_the_status(cluster: Cluster, namespace: str) -> None:
    cluster.api.create(pod(namespace, "unknown", image="local.test/nowhere:1"))

    def reason() -> bool:
        statuses = cluster.api.pod(namespace, "unknown")["status"].get("containerStatuses", [])
        return any(
            each["state"].get("waiting", {}).get("reason") == "ErrImageNeverPull"
            for each in statuses
        )

    wait_for(reason, 120, "ErrImageNeverPull")
