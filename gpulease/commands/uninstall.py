"""``gpulease uninstall``: takes everything of gpulease out of a cluster, as an admin of it.

The kinds and their order; what is ours is known by its label.  The hub, homes and servers stay.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from gpulease.errors import GPULeaseError
from gpulease.protocol import labels
from gpulease.providers.kubernetes.api.client import (
    CLAIM_TEMPLATES,
    CLAIMS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    KubernetesAPI,
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


async def everything(client: KubernetesAPI) -> AsyncIterator[Found]:
    """Yield all that is ours, in the order in which it is to go.

    Raises:
        ForbiddenError: this account may not see it.
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


async def remove(client: KubernetesAPI, found: Found) -> None:
    """Remove one thing; that it is gone already is well.

    Raises:
        ForbiddenError: this account may not do it.
    """
    try:
        if found.label:
            body = {"metadata": {"labels": {found.label: None}}}
            await client.patch(found.resource, found.name, body)
        else:
            await client.delete(found.resource, found.name, found.namespace)
    except NotFoundError:
        return


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--yes", action="store_true", help="do it; without this only list it")
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="KUBECONFIG otherwise")
    parser.add_argument("--context", default="", help="its context")


def run(arguments: argparse.Namespace, say: Callable[[str], None] = print) -> int:
    """Remove everything, or say what would go; return the exit status.

    Raises:
        GPULeaseError: ``no_kubernetes``, ``cluster_unreachable``, ``not_allowed``.
    """
    return asyncio.run(_run(arguments, say))


async def _run(arguments: argparse.Namespace, say: Callable[[str], None]) -> int:
    try:
        from gpulease.providers.kubernetes.api.official import OfficialClient
    except ImportError as error:
        raise GPULeaseError(
            "no_kubernetes",
            f"This needs a package that is not installed: {error.name}.",
            next_step="Install gpulease[kubernetes].",
        ) from error
    from gpulease.providers.kubernetes.api.client import ClientError, ForbiddenError

    client = OfficialClient(arguments.kubeconfig, arguments.context)
    try:
        found = [each async for each in everything(client)]
        for each in found:
            if arguments.yes:
                await remove(client, each)
            say(f"{'removed' if arguments.yes else 'would remove'}: {each}")
    except ForbiddenError as error:
        raise GPULeaseError(
            "not_allowed",
            f"You may not do this in the cluster: {error.message}",
            next_step="Use the kubeconfig of an admin of the cluster.",
        ) from error
    except (ClientError, OSError) as error:
        raise GPULeaseError(
            "cluster_unreachable",
            f"The API server does not answer: {error}",
            next_step="Look whether kubectl reaches the cluster with this kubeconfig.",
        ) from error
    finally:
        await client.close()
    if not found:
        say("There is nothing of gpulease in this cluster.")
    elif not arguments.yes:
        say(
            "Leases end and the service's database goes with it: bring variables home and make a"
            " backup first (gpulease admin backup). Then run this again with --yes."
        )
    return 0
