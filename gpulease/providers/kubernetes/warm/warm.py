"""Lease pods that stand ready: made, claimed by a lease of their class, replaced, given away.

Policy sets how many there should be.  A pod that stands ready belongs to nobody and holds nobody's
key.  Its token proves which pod it is, and only then does it learn which lease it serves.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from gpulease.policy.capacity import ReadyPods
from gpulease.policy.model import Device, GPUClass, Lease, LeaseState
from gpulease.policy.pods import resource_of
from gpulease.protocol import labels
from gpulease.providers.base import Told
from gpulease.providers.kubernetes.api.client import (
    PODS,
    ClientError,
    ConflictError,
    KubernetesAPI,
    Limiter,
    Manifest,
    NotFoundError,
    UnavailableError,
    only,
)
from gpulease.providers.kubernetes.api.watch import Deletes, Key, key_of
from gpulease.providers.kubernetes.manifests.manifest import Settings
from gpulease.providers.kubernetes.observed.cluster import Cluster
from gpulease.providers.kubernetes.observed.pods import granted_node, runs, warm_class
from gpulease.providers.kubernetes.observed.tokens import Tokens
from gpulease.providers.kubernetes.pod_resources.ask import ask_of
from gpulease.providers.kubernetes.warm.manifest import (
    Ready,
    Shapes,
    claim,
    has_other_data,
    surplus,
    told,
    warm_pod,
)
from gpulease.system.background import BackgroundTasks

log = logging.getLogger(__name__)

#: For so long no more pods of a class are made after one that came to nothing.
REST = timedelta(seconds=60)
#: In so long a pod must have found its place.
_PLACED = timedelta(seconds=60)
#: How often, and how long apart (seconds), our copy is looked at for a pod that was made.
_LOOKS, _LOOK_SECONDS = 100, 0.1


class WarmPods:
    """The pods that stand ready.

    Args:
        limiter: shared with the pods of leases.
        classes: returns the classes on offer.
        wake: called when a pod could be had and was not: a plan has to make room.
        clock: the time, UTC.
    """

    def __init__(
        self,
        client: KubernetesAPI,
        cluster: Cluster,
        deletes: Deletes,
        tokens: Tokens,
        settings: Settings,
        *,
        limiter: Limiter,
        classes: Callable[[], Sequence[GPUClass]],
        wake: Callable[[], None],
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._deletes = deletes
        self._tokens = tokens
        self._limiter = limiter
        self._settings = settings
        self._classes = classes
        self._wake = wake
        self._clock = clock
        self._lines: dict[str, Told] = {}  # of the pods that are ready, by UID
        self._claimed: dict[str, Mapping[str, str]] = {}  # what each was told that is somebody's
        self._asked: dict[tuple[str, int], Key] = {}  # whose claim was not answered
        self._refused: set[str] = set()  # leases that none of them serves
        self._making: Counter[str] = Counter()
        self._rest: dict[str, datetime] = {}
        self._since: datetime | None = None
        self._seconds: dict[str, float] = {}
        self._problem = ""
        self._beside = BackgroundTasks(log, "a pod could not be made ahead")
        self._namespace = only(settings.namespaces)
        self._shapes = Shapes(cluster, settings.pod, self._namespace)

    @property
    def problem(self) -> str:
        """Why none stands ready though the policy names some, "" where nothing is in the way."""
        wants = any(each.warm is not None for each in self._classes())
        if wants and not self._namespace:
            return (
                "servers run in several namespaces, so no pod can stand ready for all: remove"
                " `warm` from the classes"
            )
        return self._problem if wants else ""

    def close(self) -> None:
        """Make no more."""
        self._beside.cancel()

    # --- the pods' own channels

    async def proves(self, token: str) -> str:
        """Return the UID of the pod whose token it is, "" where it is none that was made ahead."""
        pod = await self._tokens.pod_of(token)
        if pod is None or labels.SHAPE not in (pod["metadata"].get("annotations") or {}):
            return ""
        return str(pod["metadata"]["uid"])

    def ready(self, pod: str, tell: Told) -> None:
        """Take that a pod is ready; one that has become somebody's is told so again."""
        self._lines[pod] = tell
        log.info("a pod stands ready: %s", pod)
        if self._claimed.get(pod):
            tell(self._claimed[pod])
        self._wake()

    def lost(self, pod: str, tell: Told) -> None:
        """Take that a pod's channel is over."""
        if self._lines.get(pod) == tell:
            del self._lines[pod]

    # --- leases

    async def take(self, lease: Lease, gpu_class: GPUClass, server: Manifest) -> Key | None:
        """Make a pod that stands ready this attempt's; ``None`` where there is none that serves.

        Raises:
            UnavailableError: the API server did not answer; ask again.
        """
        if gpu_class.warm is None:
            return None
        attempt = lease.id, lease.attempt
        if attempt in self._asked:
            return await self._again(attempt, lease, gpu_class, server)
        for pod in self._serving(lease, gpu_class, server):
            if await self._claim(pod, lease, gpu_class, server):
                return key_of(pod)
        self._refused.add(lease.id)
        self._wake()
        return None

    def resume(self, lease: Lease, pod: Manifest, server: Manifest | None) -> None:
        """Tell a pod again whose it has become: the service was restarted meanwhile."""
        uid = str(pod["metadata"]["uid"])
        gpu_class = next((x for x in self._classes() if x.name == lease.gpu_class), None)
        made_ahead = labels.SHAPE in (pod["metadata"].get("annotations") or {})
        if not made_ahead or uid in self._claimed or gpu_class is None or server is None:
            return
        if lease.state is LeaseState.STARTING:
            now = self._clock()
            self._say(uid, told(lease, gpu_class, server, self._settings.pod, now=now))

    def _serving(self, lease: Lease, gpu_class: GPUClass, server: Manifest) -> Iterable[Manifest]:
        """Return the pods that are ready on the granted node and just as its own would be."""
        if lease.count != 1 or lease.image or lease.needs or not lease.devices:
            return ()
        if has_other_data(server, self._settings.pod.home):
            return ()
        node = granted_node(lease)
        wanted = self._shapes.of(gpu_class, server)
        return [
            pod
            for pod in self._alive()
            if pod["metadata"]["uid"] in self._lines
            and pod["spec"].get("nodeName") == node
            and key_of(pod)[0] == key_of(server)[0]
            and warm_class(pod, self._cluster.instance) == gpu_class.name
            and pod["metadata"]["annotations"].get(labels.SHAPE) == wanted
        ]

    async def _claim(
        self, pod: Manifest, lease: Lease, gpu_class: GPUClass, server: Manifest
    ) -> bool:
        uid, now = str(pod["metadata"]["uid"]), self._clock()
        if uid in self._claimed:
            return False  # another lease was quicker
        patch, environment = claim(pod, lease, gpu_class, server, self._settings.pod, now=now)
        self._claimed[uid] = {}
        namespace, name = key_of(pod)
        try:
            await self._client.patch(PODS, name, patch, namespace)
        except (NotFoundError, ConflictError):
            return False  # it is gone
        except UnavailableError:
            self._asked[lease.id, lease.attempt] = key_of(pod)
            raise
        except ClientError as error:
            # The lease starts as without such pods; none is made until somebody could claim it.
            self._problem = (
                "pods stand ready and the service may not make them somebody's: apply"
                f" warm.enabled of the chart ({error.message})"
            )
            return False
        self._problem = ""
        self._say(uid, environment)
        return True

    async def _again(
        self, attempt: tuple[str, int], lease: Lease, gpu_class: GPUClass, server: Manifest
    ) -> Key | None:
        """Look what became of a claim that was not answered, for two pods must not be one's."""
        key = self._asked[attempt]
        try:
            pod = await self._client.get(PODS, key[1], key[0])
        except NotFoundError:
            pod = {"metadata": {}}
        del self._asked[attempt]
        marks = pod["metadata"].get("labels") or {}
        if marks.get(labels.LEASE) != labels.label_value(lease.id):
            self._claimed.pop(str(pod["metadata"].get("uid", "")), None)
            return await self.take(lease, gpu_class, server)
        uid, now = str(pod["metadata"]["uid"]), self._clock()
        self._say(uid, told(lease, gpu_class, server, self._settings.pod, now=now))
        return key

    def _say(self, uid: str, environment: Mapping[str, str]) -> None:
        self._claimed[uid] = environment
        if uid in self._lines:
            self._lines[uid](environment)

    # --- how many

    def keep(self, standing: ReadyPods, devices: Sequence[Device]) -> None:
        """Make what is lacking; let go what is too much, in the way, or made from something else.

        Args:
            standing: what should stand ready.
            devices: as they were shown last.
        """
        self._count_time()
        self._forget(standing)
        alive = {}
        for pod in self._alive():
            if self._fits(pod):
                alive[str(pod["metadata"]["uid"])] = pod
            else:
                self._deletes.begin(pod)
        ready = [self._ready(uid, pod) for uid, pod in alive.items()]
        gone = surplus(ready, standing, devices, self._refused)
        for uid in gone:
            self._deletes.begin(alive[uid])
        there = Counter(each.gpu_class for each in ready if each.uid not in gone)
        for each in self._classes():
            lacking = standing.pods.get(each.name, 0) - there[each.name] - self._making[each.name]
            for _ in range(lacking if self._may_make(each) else 0):
                self._making[each.name] += 1
                self._beside.keep(self._make(each))

    def places(self) -> dict[str, list[str]]:
        """Return the class of each pod that is ready, by node."""
        found: dict[str, list[str]] = {}
        for pod in self._alive():
            if pod["metadata"]["uid"] in self._lines:
                node = str(pod["spec"].get("nodeName") or "")
                found.setdefault(node, []).append(self._class_of(pod))
        return found

    def seconds(self) -> dict[str, float]:
        """Return for how long devices were held by pods that stood ready, by class, and forget."""
        found, self._seconds = self._seconds, {}
        return found

    def _alive(self) -> list[Manifest]:
        """Return the pods that stand ready or will, and are nobody's."""
        return [
            pod
            for pod in self._cluster.pods.warm.values()
            if runs(pod) and str(pod["metadata"]["uid"]) not in self._claimed
        ]

    def _ready(self, uid: str, pod: Manifest) -> Ready:
        name = self._class_of(pod)
        gpu_class = next(each for each in self._classes() if each.name == name)
        return Ready(
            uid,
            name,
            resource_of(ask_of(gpu_class)),
            str(pod["spec"].get("nodeName") or ""),
            uid in self._lines,
            str(pod["metadata"]["creationTimestamp"]),
        )

    def _fits(self, pod: Manifest) -> bool:
        """Whether some server's lease may still have this pod, and it has found its place."""
        name = self._class_of(pod)
        age = self._clock() - datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
        if age > _PLACED and not pod["spec"].get("nodeName"):
            self._rest[name] = self._clock() + REST
            return False
        gpu_class = next((each for each in self._classes() if each.name == name), None)
        if gpu_class is None or gpu_class.warm is None:
            return False
        shapes = self._shapes.all(gpu_class)
        return not shapes or pod["metadata"]["annotations"][labels.SHAPE] in shapes.values()

    def _forget(self, standing: ReadyPods) -> None:
        """Drop what is over: pods that ended by themselves, and notes of what is gone."""
        for pod in list(self._cluster.pods.warm.values()):
            ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            if ended and not pod["metadata"].get("deletionTimestamp"):
                name = self._class_of(pod)
                log.warning("a pod that stood ready for class %s ended by itself", name)
                self._rest[name] = self._clock() + REST
                self._deletes.begin(pod)
        self._claimed = {
            uid: said for uid, said in self._claimed.items() if self._cluster.pods.has(uid)
        }
        self._refused &= {lease for lease, _ in standing.granted.values()}

    def _may_make(self, gpu_class: GPUClass) -> bool:
        rest = self._rest.get(gpu_class.name)
        return bool(self._namespace) and (rest is None or rest <= self._clock())

    async def _make(self, gpu_class: GPUClass) -> None:
        name = f"gpulease-warm-{secrets.token_hex(6)}"
        try:
            server = self._shapes.usual(gpu_class)
            if server is None:
                return  # without any server nobody could ask
            body = warm_pod(name, gpu_class, server, self._settings.pod)
            await self._limiter.wait()
            await self._client.create(PODS, body, self._namespace)
            await self._shown(name)
        except ClientError as error:
            self._rest[gpu_class.name] = self._clock() + REST
            log.warning("no pod of class %s is made ahead: %s", gpu_class.name, error.message)
        finally:
            self._making[gpu_class.name] -= 1

    async def _shown(self, name: str) -> None:
        """Wait until our copy shows a pod: until then it counts as one that is being made."""
        for _ in range(_LOOKS):
            if self._cluster.pod((self._namespace, name)) is not None:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def _class_of(self, pod: Manifest) -> str:
        return warm_class(pod, self._cluster.instance)

    def _count_time(self) -> None:
        """Count the time of devices that were held for nobody: it is charged to nobody."""
        now, before = self._clock(), self._since
        self._since = now
        passed = max(0.0, (now - before).total_seconds()) if before is not None else 0.0
        for pod in self._alive():
            if pod["spec"].get("nodeName"):
                name = self._class_of(pod)
                self._seconds[name] = self._seconds.get(name, 0.0) + passed
