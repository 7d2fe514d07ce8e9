"""The port through which everything here speaks to the Kubernetes API.

It names the calls that gpulease makes, what they return (plain dictionaries, as the API has them)
and the few errors that callers tell apart; ``official`` carries them out.  What every caller needs
beside it stands below: how fast pods may be created, which namespaces a pattern means, and what
this account may do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Protocol

#: One API object as JSON.
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Resource:
    """One collection of the API."""

    plural: str
    group: str = ""
    version: str = "v1"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of the collection, or of one object in it."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{namespace}" if namespace else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}{inside}/{self.plural}{tail}"


PODS = Resource("pods")
NODES = Resource("nodes")
NAMESPACES = Resource("namespaces")
EVENTS = Resource("events")
QUOTAS = Resource("resourcequotas")
CLAIMS = Resource("persistentvolumeclaims")
VOLUMES = Resource("persistentvolumes")
NETWORK_POLICIES = Resource("networkpolicies", "networking.k8s.io")
RESOURCE_SLICES = Resource("resourceslices", "resource.k8s.io")
RESOURCE_CLAIMS = Resource("resourceclaims", "resource.k8s.io")
CLAIM_TEMPLATES = Resource("resourceclaimtemplates", "resource.k8s.io")
TOKEN_REVIEWS = Resource("tokenreviews", "authentication.k8s.io")
WORKLOADS = Resource("workloads", "kueue.x-k8s.io", "v1beta1")


@dataclass(frozen=True)
class Listing:
    """All objects that matched, and the version from which a watch continues."""

    items: list[Manifest]
    version: str


@dataclass(frozen=True)
class WatchEvent:
    """One message of a watch.

    ``kind``: ``ADDED | MODIFIED | DELETED | BOOKMARK``, and first of all ``OPENED``, without an
    object: the server has taken the watch.
    """

    kind: str
    object: Manifest = field(default_factory=dict)

    @property
    def version(self) -> str:
        """Return the version from which a watch continues after this message."""
        return str(self.object.get("metadata", {}).get("resourceVersion", ""))


@dataclass(frozen=True)
class TokenIdentity:
    """Whose token it is, as the API server says.

    The pod and the node are those that the token is bound to, ``""`` where it is bound to none.
    """

    username: str
    pod: str = ""
    pod_uid: str = ""
    node: str = ""
    groups: tuple[str, ...] = field(default=())

    @property
    def service_account(self) -> tuple[str, str]:
        """Return namespace and name of the service account, two ``""`` when it is none."""
        kind, _, rest = self.username.partition("serviceaccount:")
        namespace, _, name = rest.partition(":")
        return (namespace, name) if kind == "system:" else ("", "")


class ClientError(Exception):
    """The API server refused or could not be asked.  ``status`` is HTTP's, 0 without an answer."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason


class ConflictError(ClientError):
    """409: there is such an object already, or it is another one than was meant."""


class GoneError(ClientError):
    """410: the version asked for is too old; list again."""


class ForbiddenError(ClientError):
    """403: no right to do this, a quota is used up, or an admission policy refuses."""


class NotFoundError(ClientError):
    """404: there is no such object (or no such collection in this cluster)."""


class InvalidError(ClientError):
    """400 or 422: the object is not one that this cluster takes."""


class UnavailableError(ClientError, OSError):
    """No answer, or none that counts: try again later.

    ``retry_after``: seconds that the server asked for, 0 when it said nothing.
    """

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", retry_after: float = 0.0
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after = retry_after


#: Makes an object smaller; ``None`` leaves it out.
Keep = Callable[[Manifest], Manifest | None]


def whole(manifest: Manifest) -> Manifest | None:
    """Keep an object as it is."""
    return manifest


class KubernetesAPI(Protocol):
    """What gpulease asks of the API server.

    Every method raises ``ForbiddenError``, ``UnavailableError`` and what its docstring adds.
    ``labels`` and ``fields`` are selectors in the API's own syntax.  An empty namespace means all.
    """

    async def list_all(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        keep: Keep = whole,
        streamed: bool = False,
    ) -> Listing:
        """Return every object, in pages behind the scenes.

        ``keep`` is asked of each object as soon as its page is here, so that no more than a page
        is ever held whole: all pods of a large cluster are a gigabyte.  With ``streamed`` they
        come one by one from the server's cache, where it can do that.

        Raises:
            NotFoundError: the cluster does not serve this collection.
            GoneError: the list took so long that its version went away; start again.
        """

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        since: str,
        labels: str = "",
        fields: str = "",
        seconds: int = 30,
    ) -> AsyncIterator[WatchEvent]:
        """Yield what changes from version ``since`` on; ends after about ``seconds``.

        Raises:
            GoneError: ``since`` is too old.
        """

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Manifest:
        """Return one object.

        Raises:
            NotFoundError: there is none.
        """

    async def create(
        self, resource: Resource, body: Manifest, namespace: str = "", *, dry_run: bool = False
    ) -> Manifest:
        """Create an object; with ``dry_run`` only let the server check it.

        Raises:
            ConflictError: there is one of this name.
            InvalidError: the server does not take it.
        """

    async def patch(
        self, resource: Resource, name: str, body: Manifest, namespace: str = ""
    ) -> Manifest:
        """Change an object by a JSON merge patch.

        Raises:
            NotFoundError: there is none.
            ConflictError: it is of another version than the patch names.
        """

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace: int | None = None,
    ) -> None:
        """Begin to delete an object; with ``uid`` only this very one.

        Args:
            grace: seconds that a pod has to end; ``None`` is the pod's own.  Never 0: the object
                would be gone before its device is free.

        Raises:
            NotFoundError: it is gone already.
            ConflictError: another object has its name.
        """

    async def review(self, token: str, audience: str) -> TokenIdentity | None:
        """Return whose token this is, ``None`` when it is not valid for ``audience``."""

    async def close(self) -> None:
        """Close all connections."""


class Limiter:
    """Lets ``rate`` calls a second through, and a burst of as many.

    Args:
        rate: calls a second, above 0.
        burst: how many may go at once after a quiet time; by default one second's worth.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        rate: float = 10.0,
        burst: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if rate <= 0:
            raise ValueError("a rate is above 0")
        self._rate = rate
        self._burst = max(1, round(rate) if burst is None else burst)
        self._clock = clock
        self._left = float(self._burst)
        self._at = clock()

    def take(self) -> float:
        """Take one call's place; return the seconds until it may go, 0 for at once.

        Places are given in the order in which they are taken.
        """
        now = self._clock()
        self._left = min(float(self._burst), self._left + (now - self._at) * self._rate)
        self._at = now
        self._left -= 1.0
        return max(0.0, -self._left / self._rate)

    async def wait(self) -> None:
        """Wait for one call's turn."""
        seconds = self.take()
        if seconds:
            await asyncio.sleep(seconds)


def is_pattern(namespace: str) -> bool:
    """Whether this is a pattern of names, not a name."""
    return bool(set(namespace) & set(_WILD))


def plain(namespaces: Sequence[str]) -> list[str]:
    """Return those that are names."""
    return [each for each in namespaces if not is_pattern(each)]


def only(namespaces: Sequence[str]) -> str:
    """Return the one namespace that there is, "" for several and for what a pattern may mean."""
    return namespaces[0] if len(namespaces) == 1 and not is_pattern(namespaces[0]) else ""


def may_meet(one: str, other: str) -> bool:
    """Whether some namespace could be meant by both; two patterns are told apart by how they begin.

    A hub that names namespaces after its people can make whatever its pattern means.
    """
    if is_pattern(one) and is_pattern(other):
        begin, start = _beginning(one), _beginning(other)
        return begin.startswith(start) or start.startswith(begin)
    return fnmatchcase(one, other) or fnmatchcase(other, one)


def hub_of(namespace: str, hubs: Mapping[str, Sequence[str]]) -> str:
    """Return the further hub whose servers run in a namespace, "" for the first hub's or none's.

    Args:
        namespace: a name.
        hubs: names and patterns by further hub.
    """
    for hub, patterns in hubs.items():
        if any(fnmatchcase(namespace, pattern) for pattern in patterns):
            return hub
    return ""


def _beginning(pattern: str) -> str:
    return pattern[: min(pattern.index(each) for each in _WILD if each in pattern)]


_WILD = "*?["


_REVIEWS: Final = Resource("selfsubjectaccessreviews", "authorization.k8s.io")


async def may(client: KubernetesAPI, verb: str, group: str, resource: str, namespace: str) -> bool:
    """Whether this account may do so ("pods/exec" has a subresource) in a namespace.

    Args:
        client: of the account.
        verb: "create" and the like.
        group: of the API, "" for the core's.
        resource: its plural name.
        namespace: "" is everywhere.

    Raises:
        ClientError: the API server does not answer.
    """
    plain, _, part = resource.partition("/")
    asked = {
        "verb": verb,
        "group": group,
        "resource": plain,
        "subresource": part,
        "namespace": namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in asked.items() if value}},
    }
    answer = await client.create(_REVIEWS, body)
    return bool(answer.get("status", {}).get("allowed"))
