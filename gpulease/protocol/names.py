"""The names of gpulease's environment variables, and the version that its processes speak.

Most of the variables come from the spawner or from a lease pod's manifest.
"""

from __future__ import annotations

from typing import Final

#: Processes that talk to each other must have the same major number.
PROTOCOL_VERSION: Final = "1.0"
#: Header in which gpulease's own clients send it; requests without it are not checked.
HEADER_PROTOCOL: Final = "GPULease-Protocol"


def is_understood(version: str) -> bool:
    """Whether who speaks this version of the protocol and we understand each other."""
    return version.partition(".")[0] == PROTOCOL_VERSION.partition(".")[0]


#: Mark in the environment of every process of a lease; how a lease's processes are found again.
ENV_LEASE: Final = "GPULEASE_LEASE"
#: Path of the bus socket, set by ``gpulease.lab`` for the kernels it starts.
ENV_BUS: Final = "GPULEASE_BUS"
#: Public prefix of the lease service, with scheme and host, set by the spawner.
ENV_SERVICE_URL: Final = "GPULEASE_SERVICE_URL"
#: Authorities (PEM text) whose certificate the service may show, beside the system's.
ENV_SERVICE_CA: Final = "GPULEASE_SERVICE_CA"
#: ``1`` where the IPython startup file shall load the kernel extension.
ENV_AUTOLOAD: Final = "GPULEASE_AUTOLOAD"
#: Variables with secrets that a site lets notebooks take to the GPU, with commas between.
ENV_SHARED: Final = "GPULEASE_SHARED_VARIABLES"

#: What GPU cells ask for where they say nothing, written as behind ``%%gpu``; set by
#: ``gpulease.lab`` for the kernel of a whole notebook's run.
ENV_CELL_OPTIONS: Final = "GPULEASE_CELL_OPTIONS"

#: The nodes of a companion's lease (``companion.nodes``), for ``gpulease launch``;
ENV_NODES: Final = "GPULEASE_NODES"
#: and where some of them are other pods: the file with the keys that they hear.
ENV_LAUNCH_KEYS: Final = "GPULEASE_LAUNCH_KEYS"

#: What a lease pod's manifest tells ``gpulease companion --pod``, beside ``ENV_LEASE`` and
#: ``ENV_SERVICE_URL``: which start of the lease this is (1 is the first);
ENV_ATTEMPT: Final = "GPULEASE_ATTEMPT"
#: of a lease on several nodes: which one this pod is, how many there are, and all their GPUs;
ENV_RANK: Final = "GPULEASE_RANK"
ENV_NODE_COUNT: Final = "GPULEASE_NODE_COUNT"
ENV_COUNT: Final = "GPULEASE_COUNT"
#: the pod's address, which notebooks connect to (downward API ``status.podIP``);
ENV_POD_IP: Final = "GPULEASE_POD_IP"
#: ports of that address, ``LOWEST-HIGHEST``, the only ones that are listened on;
ENV_PORTS: Final = "GPULEASE_PORTS"
#: file of the projected token, read anew for each connection;
ENV_TOKEN_FILE: Final = "GPULEASE_TOKEN_FILE"  # noqa: S105 - a name
#: ISO time at which the lease ends when nobody says otherwise; "" where that is not known yet;
ENV_HARD_END: Final = "GPULEASE_HARD_END"
#: seconds from SIGTERM to SIGKILL (``terminationGracePeriodSeconds``);
ENV_GRACE: Final = "GPULEASE_GRACE"
#: seconds that a drain may take;
ENV_DRAIN_MAX: Final = "GPULEASE_DRAIN_MAX"
#: where home's volume is not mounted: the directory that takes its place and holds the mirror of
#: the working directory, at the path where home has it; "" where home is mounted;
ENV_MIRROR: Final = "GPULEASE_MIRROR"
#: bytes that a mirror may hold;
ENV_MIRROR_LIMIT: Final = "GPULEASE_MIRROR_LIMIT"
#: ``1`` in a pod that stands ready: the service tells it over a channel whose it has become;
ENV_WARM: Final = "GPULEASE_WARM"
#: where values that cannot go home are parked, "" for nowhere; and whose they are.
ENV_PARK: Final = "GPULEASE_PARK"
ENV_USER: Final = "GPULEASE_USER"
ENV_SERVER: Final = "GPULEASE_SERVER"

#: Where notebooks find a lease pod, unless its manifest names other ports.
DEFAULT_PORTS: Final = (8890, 8990)
