"""What a large cluster costs the service: its first list of 20,000 pods, 5,000 nodes, and rounds.

An API server's place is taken by a process that makes the objects up, as a stream or in pages; the
service's client, live copies and capacity run in a process of their own, whose memory is read.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tornado.web import Application, RequestHandler

from benchmarks.measure import Aim, Variants, progress, report
from gpulease.policy.model import GPUClass
from gpulease.providers.kubernetes.api.official import OfficialClient
from gpulease.providers.kubernetes.capacity.capacity import Capacity
from gpulease.providers.kubernetes.capacity.usage import AgentUsage
from gpulease.providers.kubernetes.observed.cluster import Cluster
from tests.providers.kubernetes.api_stream import write_config

PODS, NODES, GPUS = 20_000, 5_000, 8
#: Pods of notebook servers, and those of others that hold a GPU, among so many.
SERVERS, HOLDERS = 10, 4
MEGABYTES = 150.0
LOOKS = 10


async def measure(_: object, *, rounds: int, scale: float) -> dict[str, Any]:  # noqa: ARG001
    """Run this part once for each kind of list and return its report."""
    variants, aims, more = Variants(), [], {}
    for kind in ("streamed", "in pages"):
        progress(f"large: a first list {kind}")
        found = await asyncio.to_thread(_one, kind, scale)
        for name, seconds in found.pop("seconds").items():
            variants.seconds[f"{name}, {kind}"] = seconds
        aims.append(Aim(f"most memory (MB), first list {kind}", found["listed_mb"], MEGABYTES))
        more[kind] = found
    return report("kubernetes: large", variants, aims, runs=more)


def _one(kind: str, scale: float) -> dict[str, Any]:
    role = [sys.executable, "-m", "benchmarks.kubernetes.large"]
    with tempfile.TemporaryDirectory() as made:
        config = Path(made) / "kubeconfig"
        with subprocess.Popen(
            [*role, "serve", kind, str(scale)], stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                assert server.stdout is not None
                write_config(config, int(server.stdout.readline()), "of nobody")
                done = subprocess.run(
                    [*role, "look", str(config)], capture_output=True, text=True, check=True
                )
            finally:
                server.kill()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def _look(config: str) -> dict[str, Any]:
    """Open the live copies, then work out the capacity of some rounds."""
    client = OfficialClient(config)
    cluster = Cluster(client, "gpulease", ["jupyterhub"])
    before, began = _peak(), time.perf_counter()
    await cluster.open()
    seconds, listed = {"first list": [time.perf_counter() - began]}, _peak()
    capacity, classes = (
        Capacity(cluster, AgentUsage()),
        (GPUClass("card", "cards", max_count=GPUS),),
    )
    pods = [each for each in cluster.pods.uses if each.asks]
    for name in ("first round", *["a round after one pod ended"] * LOOKS):
        if name != "first round":
            cluster._pods._put(pods.pop().key, None)  # noqa: SLF001 - as its watch would
        began = time.perf_counter()
        devices = capacity.look(classes, {}, datetime.now(UTC))
        seconds.setdefault(name, []).append(time.perf_counter() - began)
    found = {
        "seconds": seconds,
        "started_mb": before,
        "listed_mb": listed,
        "after_rounds_mb": _peak(),
        "pods_kept": len(cluster._pods.objects),  # noqa: SLF001
        "devices": len(devices),
    }
    await cluster.close()
    await client.close()
    return found


def _peak() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


class _Objects(RequestHandler):
    def initialize(self, *, streams: bool, scale: float) -> None:
        self._streams, self._scale = streams, scale

    async def get(self) -> None:
        name = self.request.path.rpartition("/")[2]
        make, most = {"pods": (_pod, PODS), "nodes": (_node, NODES)}.get(name, (_node, 0))
        number = round(most * self._scale)
        self.set_header("Content-Type", "application/json")
        if self.get_argument("sendInitialEvents", "") and not self._streams:
            self.set_status(422)
            self.finish({"code": 422, "message": "this server gives pages"})
        elif self.get_argument("watch", ""):
            if self.get_argument("sendInitialEvents", ""):
                for index in range(number):
                    self.write(_event("ADDED", make(index)))
                    if index % 20 == 0:
                        await self.flush()
                sent = {"annotations": {"k8s.io/initial-events-end": "true"}}
                self.write(_event("BOOKMARK", {"metadata": {"resourceVersion": "9", **sent}}))
            await self.flush()
            await asyncio.Event().wait()
        else:
            first = int(self.get_argument("continue", "0"))
            after = min(number, first + int(self.get_argument("limit")))
            meta = {"resourceVersion": "9"} | ({"continue": str(after)} if after < number else {})
            items = [make(index) for index in range(first, after)]
            self.finish(json.dumps({"metadata": meta, "items": items}))


def _event(kind: str, about: dict[str, Any]) -> str:
    return json.dumps({"type": kind, "object": about}) + "\n"


def _managed(fields: int) -> list[dict[str, Any]]:
    """Return what the API server notes of who changed which field: half of an object, often."""
    noted: dict[str, Any] = {
        f"f:field{number}": {".": {}, "f:name": {}} for number in range(fields)
    }
    return [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": noted}}] * 2


def _pod(index: int) -> dict[str, Any]:
    server, holds = index % SERVERS == 0, index % HOLDERS == 1
    gpu = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}} if holds else {}
    env = [{"name": f"VARIABLE_{n}", "value": f"value {n} of {index} " * 2} for n in range(30)]
    mounts = [{"name": f"v{n}", "mountPath": f"/v{n}"} for n in range(5)]
    claims = [
        {"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"claim-{index}-{n}"}}
        for n in range(5)
    ]
    return {
        "metadata": {
            "name": f"pod-{index}",
            "namespace": "jupyterhub" if server else f"team-{index % 50}",
            "uid": f"uid-of-pod-{index}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"component": "singleuser-server" if server else "job"},
            "annotations": {"gpulease/user": f"user-{index}"} if server else {},
            "managedFields": _managed(60),
        },
        "spec": {
            "nodeName": f"node-{index % NODES:05d}",
            "containers": [
                {
                    "name": "notebook",
                    "image": "quay.io/jupyter/scipy-notebook:1",
                    "env": env,
                    "resources": gpu,
                    "volumeMounts": mounts,
                }
            ],
            "volumes": claims,
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": f"T{n}", "status": "True"} for n in range(5)],
        },
    }


def _node(index: int) -> dict[str, Any]:
    offered = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    marks = {f"feature.node/label-{n}": f"value-{n}" for n in range(30)}
    conditions = [
        {"type": kind, "status": str(kind == "Ready"), "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
        for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
    ]
    return {
        "metadata": {
            "name": f"node-{index:05d}",
            "uid": f"uid-of-node-{index}",
            "labels": marks | {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "A100"},
            "managedFields": _managed(60),
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": conditions,
            "images": [{"names": [f"image-{n}"], "sizeBytes": 1} for n in range(50)],
        },
    }


async def _serve(kind: str, scale: float) -> None:
    settings = {"streams": kind == "streamed", "scale": scale}
    server = Application([("/.*", _Objects, settings)]).listen(0, "127.0.0.1")
    (port,) = {each.getsockname()[1] for each in server._sockets.values()}  # noqa: SLF001
    print(port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(_serve(sys.argv[2], float(sys.argv[3])))
    else:
        print(json.dumps(asyncio.run(_look(sys.argv[2]))))
