"""What a user's own namespace needs so that leases can run there: copies of what the hub's has.

Service account, network policies and role binding are copied: those that bear gpulease's labels in
the hub's namespace.  An admin sees a message when that fails.  KubeSpawner makes the namespace.  No
new rights arise: only bindings are copied, and the API server lets the hub bind only what its own
role names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gpulease.protocol import labels

Manifest = dict[str, Any]

#: Objects of the hub's namespace that bear these labels are copied into each user's.
SELECTOR = f"{labels.NAME}={labels.APP},{labels.COMPONENT}={labels.LEASE_COMPONENT}"
#: What of an object is the site's; the rest belongs to the one object in its one place.
_KEPT = ("apiVersion", "kind", "spec", "roleRef", "subjects", "automountServiceAccountToken")


def copy_of(manifest: Manifest) -> Manifest:
    """Return an object of the hub's namespace as it is to stand in another."""
    metadata = manifest["metadata"]
    kept = {key: manifest[key] for key in _KEPT if key in manifest}
    return kept | {"metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}}}


@dataclass(frozen=True)
class _Kind:
    """One kind of object with the calls that list, create and replace it."""

    api_version: str
    kind: str
    list: Callable[..., Awaitable[Any]]
    create: Callable[..., Awaitable[Any]]
    #: Network policies follow the hub's namespace; accounts and bindings never change.
    replace: Callable[..., Awaitable[Any]] | None = None


def _kinds(api_client: Any) -> Iterator[_Kind]:
    """Yield the kinds in order: what bounds lease pods first, the right to create them last."""
    from kubernetes_asyncio import client

    network = client.NetworkingV1Api(api_client)
    yield _Kind(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        network.list_namespaced_network_policy,
        network.create_namespaced_network_policy,
        network.replace_namespaced_network_policy,
    )
    core = client.CoreV1Api(api_client)
    yield _Kind(
        "v1",
        "ServiceAccount",
        core.list_namespaced_service_account,
        core.create_namespaced_service_account,
    )
    rights = client.RbacAuthorizationV1Api(api_client)
    yield _Kind(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        rights.list_namespaced_role_binding,
        rights.create_namespaced_role_binding,
    )


async def furnish(api_client: Any, source: str, target: str, *, seconds: float) -> list[str]:
    """Copy what leases need from namespace ``source`` to ``target``; what is there may stay.

    Args:
        api_client: of ``kubernetes_asyncio``, with the hub's rights.
        seconds: for each call.

    Returns:
        What was copied, as ``KIND/NAME``.

    Raises:
        FurnishError: what is missing, in a sentence.
    """
    done = []
    for kind in _kinds(api_client):
        found = await _called(
            f"list {kind.kind} in {source}",
            kind.list(source, label_selector=SELECTOR),
            seconds,
        )
        items = api_client.sanitize_for_serialization(found)["items"]
        if not items:
            raise FurnishError(
                f"Namespace {source} has no {kind.kind} with the labels {SELECTOR} to copy."
            )
        for item in items:
            body = copy_of({**item, "apiVersion": kind.api_version, "kind": kind.kind})
            await _put(kind, body, target, seconds)
            done.append(f"{kind.kind}/{body['metadata']['name']}")
    return done


async def _put(kind: _Kind, body: Manifest, target: str, seconds: float) -> None:
    name = body["metadata"]["name"]
    what = f"create {kind.kind} {name} in {target}"
    if await _called(what, kind.create(target, body), seconds, there=409) is not None:
        return
    if kind.replace is not None:
        what = f"replace {kind.kind} {name} in {target}"
        await _called(what, kind.replace(name, target, body), seconds)


async def _called(what: str, call: Awaitable[Any], seconds: float, *, there: int = 0) -> Any:
    """Return the answer, ``None`` for the status ``there``."""
    from kubernetes_asyncio.client import ApiException

    try:
        return await asyncio.wait_for(call, seconds)
    except ApiException as error:
        if error.status == there:
            return None
        raise FurnishError(f"The hub could not {what}: {error.status} {error.reason}.") from error
    except (TimeoutError, OSError) as error:
        raise FurnishError(f"The hub could not {what}: no answer.") from error


class FurnishError(Exception):
    """A namespace could not be prepared for leases; the text is a sentence for the admin."""
