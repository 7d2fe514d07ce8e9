"""``gpulease uninstall``: takes everything of gpulease out of a cluster, as an admin of it."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable

from gpulease.errors import GPULeaseError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--yes", action="store_true", help="do it; without this only say what")
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
    from gpulease.providers.kubernetes import uninstall
    from gpulease.providers.kubernetes.api.client import ClientError, ForbiddenError

    client = OfficialClient(arguments.kubeconfig, arguments.context)
    try:
        found = [each async for each in uninstall.everything(client)]
        for each in found:
            if arguments.yes:
                await uninstall.remove(client, each)
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
