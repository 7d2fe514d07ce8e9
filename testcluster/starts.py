"""Makes the pods that cannot start on a real cluster, and reads each until its start is told.

`python -m testcluster.starts DIRECTORY` does it on the cluster of that directory and keeps what
was said in `tests/providers/kubernetes/statuses.json`, for the tests without a cluster.
"""

import json
import re
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpulease.providers.kubernetes.observed.reasons import Reading, read_pod
from testcluster.api import Api, Object
from testcluster.cluster import Cluster
from testcluster.pods import delete_namespace, new_namespace
from tests.helpers import wait_for
from tests.providers.kubernetes.failing_pods import CASES, Case, claim_templates, pod_of

KEPT = Path(__file__).parents[1] / "tests" / "providers" / "kubernetes" / "statuses.json"


def watch_starts(api: Api, namespace: str) -> "Watch":
    """Create the pod of every case and return what was read once each start is told."""
    classes, template = claim_templates(namespace)
    path = "/apis/resource.k8s.io/v1/deviceclasses"
    name = f"none-{namespace}"
    classes["metadata"]["name"] = name
    template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = name
    api.request("POST", path, classes)
    try:
        api.create(template)
        for case in CASES:
            api.create(pod_of(case, namespace))
        watch = Watch(api, namespace)
        wait_for(watch.all_told, 300, "every start told")
    finally:
        api.delete(f"{path}/{name}")
    return watch


class Watch:
    """Reads each pod of a namespace again and again until its start is told."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self.last: dict[str, Reading] = {}
        self.stages: dict[str, set[str]] = {}
        self.shots: dict[str, list[Object]] = {}
        """What the API said whenever the reading changed."""
        self._evicted: set[str] = set()

    def all_told(self) -> bool:
        """Read every pod that is not told yet; say whether all are."""
        pods = self._api.items(f"/api/v1/namespaces/{self._namespace}/pods")
        events = self._api.items(f"/api/v1/namespaces/{self._namespace}/events")
        shown = {each["metadata"]["name"]: each for each in pods}
        waiting = [case for case in CASES if not self._told(case)]
        for case in waiting:
            if case.name in shown:
                self._read(case, shown[case.name], events)
        assert not waiting, {case.name: self.last.get(case.name) for case in waiting}
        return True

    def _told(self, case: Case) -> bool:
        reading = self.last.get(case.name)
        if reading is None:
            return False
        return bool(reading.failed) if case.failed else reading.stage == case.stage

    def _read(self, case: Case, pod: Object, events: list[Object]) -> None:
        uid = pod["metadata"]["uid"]
        about = [each for each in events if each["involvedObject"].get("uid") == uid]
        now = datetime.now(UTC)
        reading = read_pod(pod, about, now=now)
        before = self.last.get(case.name, Reading())
        if (reading.stage, reading.failed) != (before.stage, before.failed):
            shot: Object = {"at": now.isoformat()}
            shot |= {"stage": reading.stage, "failed": reading.failed}
            shot |= {"pod": _lean_pod(pod), "events": [_lean_event(each) for each in about]}
            self.shots.setdefault(case.name, []).append(shot)
        self.last[case.name] = reading
        self.stages.setdefault(case.name, set()).add(reading.stage)
        if case.does == "evict" and reading.stage == "connecting" and uid not in self._evicted:
            self._evicted.add(uid)
            path = f"/api/v1/namespaces/{self._namespace}/pods/{case.name}/eviction"
            metadata = {"name": case.name, "namespace": self._namespace}
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
            self._api.request("POST", path, eviction)


def _lean_pod(pod: Object) -> Object:
    """Return what the reading looks at, without what would only make the file long."""
    meta, status = pod["metadata"], dict(pod["status"])
    kept = ("phase", "reason", "message", "conditions", "containerStatuses")
    status = {key: status[key] for key in kept if key in status}
    for container in status.get("containerStatuses", ()):
        for key in set(container) - {"name", "image", "state", "ready"}:
            del container[key]
    times = ("name", "creationTimestamp", "deletionTimestamp")
    return {
        "metadata": {key: meta[key] for key in times if key in meta},
        "spec": {key: pod["spec"][key] for key in ("nodeName",) if key in pod["spec"]},
        "status": status,
    }


def _lean_event(event: Object) -> Object:
    kept = ("reason", "message", "type", "firstTimestamp", "lastTimestamp", "eventTime", "series")
    return {key: event[key] for key in kept if event.get(key)}


def _record(directory: Path) -> None:
    cluster = Cluster.at(directory)
    cluster.enter()
    namespace = f"starts-{uuid.uuid4().hex[:8]}"
    new_namespace(cluster.api, namespace)
    try:
        watch = watch_starts(cluster.api, namespace)
    finally:
        delete_namespace(cluster.api, namespace)
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    kept["pods"] |= watch.shots
    pods = ",\n".join(f"{json.dumps(n)}: {json.dumps(each)}" for n, each in kept["pods"].items())
    refusals = ",\n".join(json.dumps(each) for each in kept["refusals"])
    text = f'{{"pods": {{\n{pods}}},\n"refusals": [\n{refusals}]}}\n'
    # A resolver's address in a message is this machine's own.
    KEPT.write_text(re.sub(r"\b\d+\.\d+\.\d+\.\d+\b", "192.0.2.53", text), encoding="utf-8")


if __name__ == "__main__":
    _record(Path(sys.argv[1]))
