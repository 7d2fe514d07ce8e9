"""A Kubernetes provider on the real cluster, with the pods of notebook servers beside it.

Lease pods run a small program in place of the companion, so that a test decides when it ends.  The
supervisor channel is the test's own word: who connects is not the provider's matter.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpulease.policy.model import GPUClass, Lease
from gpulease.protocol import labels
from gpulease.providers.base import LinkState
from gpulease.providers.kubernetes.api.official import OfficialClient
from gpulease.providers.kubernetes.manifests import manifest
from gpulease.providers.kubernetes.manifests.manifest import PodSettings, Settings
from gpulease.providers.kubernetes.manifests.process import TOKEN_FILE
from gpulease.providers.kubernetes.provider import KubernetesProvider
from gpulease.providers.local import processes
from testcluster import agents
from testcluster.api import Api, Object
from testcluster.cluster import Cluster
from testcluster.images import GPULEASE_IMAGE
from testcluster.pods import wait_for_phase
from tests.contract.provider import Links
from tests.helpers import wait_for_async

CARD = GPUClass("any", "cards", max_count=4)
#: Ends at once when it is asked to, as a companion that brought everything home does.
OBEDIENT = ("sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait")
#: Goes on for a while after it was asked to end.
SLOW = ("sh", "-c", "trap '' TERM; sleep 3600")


@dataclass
class LeaseWorld:
    """One namespace with servers, and a provider that looks after it."""

    cluster: Cluster
    namespace: str
    instance: str = ""
    classes: Sequence[GPUClass] = (CARD,)
    bind_timeout: float = 10.0
    links: Links = field(default_factory=Links)
    wakes: int = 0
    provider: KubernetesProvider = field(init=False)

    def __post_init__(self) -> None:
        self.instance = self.instance or self.namespace
        self.provider = self.fresh()

    def fresh(self, **changed: Any) -> KubernetesProvider:
        """Return another provider over the same cluster, not opened yet."""
        pod = PodSettings(
            service_url="http://198.18.0.1:1/services/gpulease/",
            instance=self.instance,
            image=GPULEASE_IMAGE,
            shared_memory="",
        )
        settings = Settings(
            pod=replace(pod, **changed),
            namespaces=(self.namespace,),
            bind_timeout=self.bind_timeout,
            agents=(self.namespace, "agent"),
        )
        client = OfficialClient(str(self.cluster.layout.kubeconfig))
        return KubernetesProvider(
            client, self.links, settings, classes=lambda: self.classes, wake=self._wake
        )

    async def open(self) -> None:
        self.account(manifest.SERVICE_ACCOUNT)
        await asyncio.wait_for(self.provider.open(), 120)

    async def close(self) -> None:
        await self.provider.close()

    async def restart(self) -> None:
        """Let a fresh provider follow one that was killed: it said nothing to anybody."""
        await self.provider.close()
        self.provider = self.fresh()
        await asyncio.wait_for(self.provider.open(), 120)

    @property
    def api(self) -> Api:
        return self.cluster.api

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def account(self, name: str) -> None:
        metadata = {"name": name, "namespace": self.namespace}
        self.api.ensure({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})

    def server(self, user: str, server: str = "", **spec: Any) -> Object:
        """Create the pod of a notebook server and return it once it runs."""
        name = labels.object_name(f"jupyter-{user}-{server}".rstrip("-"))
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "annotations": {labels.USER: user, labels.SERVER: server},
                "labels": {labels.INSTANCE: labels.label_value(self.instance)},
            },
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "dnsPolicy": "Default",
                "containers": [
                    {
                        "name": "notebook",
                        "image": GPULEASE_IMAGE,
                        "imagePullPolicy": "Never",
                        "command": list(OBEDIENT),
                        # As images of notebooks say; lease pods are their servers' account.
                        "securityContext": {"runAsUser": 1000},
                    }
                ],
                **spec,
            },
        }
        self.api.create(body)
        return wait_for_phase(self.api, self.namespace, name)

    def lease_pod(self, lease: Lease, rank: int = 0) -> Object | None:
        """Return a pod of this attempt as the API server has it."""
        name = labels.lease_pod_name(lease.id, lease.attempt, rank)
        return self.api.find(f"{self.pods_path}/{name}")

    async def running(self, lease: Lease, rank: int = 0) -> Object:
        """Wait until a pod of this attempt runs."""

        def there() -> Object:
            pod = self.lease_pod(lease, rank)
            assert pod is not None, "there is no pod"
            assert pod["status"].get("phase") == "Running", pod["status"]
            return pod

        return await wait_for_async(there, 120, f"lease pod of {lease.id}")

    async def run(self, lease: Lease) -> None:
        """Let the pod run, and its supervisor connect."""
        await self.running(lease)
        await self._until_seen(lease)
        self.links.states[lease.id] = LinkState(lease.attempt, connected=True)

    async def token(self, lease: Lease, rank: int = 0) -> str:
        """Return the token that the kubelet put into an attempt's pod, as its processes read it.

        Not by the lease's mark alone: another attempt's pod may still be ending.
        """
        uid = (await self.running(lease, rank))["metadata"]["uid"]

        def found() -> str:
            inside = agents.processes_of(uid)
            for process in processes.marked().get(lease.id, set()):
                if process.pid in inside:
                    path = Path(f"/proc/{process.pid}/root{TOKEN_FILE}")
                    return path.read_text(encoding="ascii")
            return ""

        return await wait_for_async(found, 120, f"the token of {lease.id}")

    async def die(self, lease: Lease) -> None:
        """Kill every process of the lease, as a crash does."""
        await self.disconnect(lease)

        def killed() -> bool:
            left = processes.marked().get(lease.id, set())
            for process in left:
                try:
                    os.kill(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            return not left

        await wait_for_async(killed, 120, f"processes of {lease.id} to end")

    async def disconnect(self, lease: Lease) -> None:
        state = self.links.states.get(lease.id)
        if state is not None:
            self.links.states[lease.id] = replace(state, connected=False)

    async def _until_seen(self, lease: Lease) -> None:
        async def seen() -> bool:
            await self.provider.devices()
            shown = await self.provider.observe()
            return any(each.lease_id == lease.id and each.devices for each in shown)

        await wait_for_async(seen, 120, f"the provider to see where {lease.id} is")

    def _wake(self) -> None:
        self.wakes += 1
