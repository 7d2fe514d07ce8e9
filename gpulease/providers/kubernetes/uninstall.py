"""Finds and removes everything that an installation of gpulease put into a cluster.

The kinds and their order; ours are known by their label.  The hub, homes and servers stay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from gpulease import labels
from gpulease.providers.kubernetes.api.client import (
    CLAIM_TEMPLATES,
    CLAIMS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    Client,
    NotFoundError,
    Resource,
)

_APPS, _RBAC = "apps", "rbac.authorization.k8s.io"
_ADMISSION, _MONITORING = "admissionregistration.k8s.io", "monitoring.coreos.com"
#: In this order: who makes pods goes before the pods, what keeps them in bounds after them.
KINDS: Final = (
    Resource("deployments", _APPS),
    Resource("daemonsets", _APPS),
    PODS,
    CLAIM_TEMPLATES,
    Resource("services"),
    Resource("configmaps"),
    Resource("secrets"),
    CLAIMS,
    NETWORK_POLICIES,
    Resource("rolebindings", _RBAC),
    Resource("roles", _RBAC),
    Resource("clusterrolebindings", _RBAC),
    Resource("clusterroles", _RBAC),
    Resource("serviceaccounts"),
    Resource("priorityclasses", "scheduling.k8s.io"),
    Resource("validatingadmissionpolicybindings", _ADMISSION),
    Resource("validatingadmissionpolicies", _ADMISSION),
    Resource("servicemonitors", _MONITORING),
    Resource("podmonitors", _MONITORING),
    Resource("prometheusrules", _MONITORING),
)
_OURS: Final = f"{labels.NAME}={labels.APP}"


@dataclass(frozen=True)
class Found:
    """One thing of ours.  ``label``: only this label of it goes, the object stays."""

    resource: Resource
    name: str
    namespace: str = ""
    label: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        what = f"label {self.label} of " if self.label else ""
        return f"{what}{self.resource.plural} {self.name}{where}"


async def everything(client: Client) -> AsyncIterator[Found]:
    """Yield all that is ours, in the order in which it is to go.

    Raises:
        ForbiddenError: whoever asks may not see it.
    """
    for resource in KINDS:
        try:
            listing = await client.list_all(resource, labels=_OURS)
        except NotFoundError:
            continue  # the cluster has no such kind
        for each in listing.items:
            meta = each["metadata"]
            yield Found(resource, str(meta["name"]), str(meta.get("namespace", "")))
    # Namespaces that a hub made for its users stay, with every home in them.
    for each in (await client.list_all(NAMESPACES, labels=labels.INSTANCE)).items:
        yield Found(NAMESPACES, str(each["metadata"]["name"]), label=labels.INSTANCE)


async def remove(client: Client, found: Found) -> None:
    """Remove one thing; that it is gone already is well.

    Raises:
        ForbiddenError: whoever asks may not.
    """
    try:
        if found.label:
            body = {"metadata": {"labels": {found.label: None}}}
            await client.patch(found.resource, found.name, body)
        else:
            await client.delete(found.resource, found.name, found.namespace)
    except NotFoundError:
        return
