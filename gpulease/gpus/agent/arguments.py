"""The options of ``gpulease agent``: names, help texts and environment variables.

Nothing is imported that only the agent has, so that every other subcommand works without it.
"""

from __future__ import annotations

import argparse

from gpulease.gpus.agent.batches import EVERY, EVERY_HELD
from gpulease.protocol.names import ENV_SERVICE_URL, ENV_TOKEN_FILE

#: The node's name (downward API).
ENV_NODE = "GPULEASE_NODE"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("--service", metavar="URL", help=f"the lease service's address ({ENV_SERVICE_URL})")
    add(
        "--token-file",
        metavar="FILE",
        help=f"the projected token, read for each post ({ENV_TOKEN_FILE})",
    )
    add("--ca-file", metavar="FILE", help="what the service's certificate is checked against")
    add(
        "--plain-http",
        action="store_true",
        help="allow an address without TLS, where the network is trusted",
    )
    add("--node", metavar="NAME", help=f"the node's name, for metrics only ({ENV_NODE})")
    add("--ledger", metavar="FILE", help="where batches wait for the service; by default in memory")
    add(
        "--kubelet-socket",
        metavar="PATH",
        default="/var/lib/kubelet/pod-resources/kubelet.sock",
        help="the kubelet's PodResources socket",
    )
    add("--proc", metavar="PATH", default="/proc", help="the node's proc file system")
    add("--host", metavar="ADDRESS", default="", help="where to answer; by default everywhere")
    add("--port", type=int, default=8892, help="for /healthz and /metrics; 0 is any free one")
    add("--every", type=float, default=EVERY, metavar="S", help="seconds between two batches")
    add(
        "--every-held",
        type=float,
        default=EVERY_HELD,
        metavar="S",
        help="the same while a pod holds a device; at most 8",
    )
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    add("--log-level", choices=levels, default="INFO", help="how much is logged")
