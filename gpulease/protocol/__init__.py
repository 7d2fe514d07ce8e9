"""The words that gpulease's processes say to each other.

Names, versions and JSON shapes of six conversations, so that both ends read one page:

* **REST** between any client and the lease service (``LeaseView`` and the lists of it), and
  **events**: ``api/events`` websocket, service to a page or to one notebook server (``service``);
* **bus**: Unix socket of ``gpulease.lab``, notebook server to its kernels (``bus``);
* **supervisor channel**: ``api/leases/{id}/supervisor`` websocket, lease supervisor to service
  (``supervisor``);
* **control**: CurveZMQ socket of the supervisor, home kernel to lease (``control``);
* **agent**: ``POST api/agents/batches``, a GPU node's agent to the service (``agents``).

What is checked (``agents``, ``asks``, ``reports``) is imported by its own name.

The seventh conversation, variables between home kernel and companion, belongs to
``gpulease.transfer``.
Times are ISO 8601 strings in UTC with offset, durations are seconds, sizes are bytes.
"""

from __future__ import annotations

from gpulease.protocol.control import (
    EXECUTE_METADATA,
    CellText,
    CompanionOpen,
    CompanionOpened,
    ExecuteMetadata,
    KernelDrained,
    MirrorView,
    ReplyMetadata,
)
from gpulease.protocol.names import (
    DEFAULT_PORTS,
    ENV_ATTEMPT,
    ENV_AUTOLOAD,
    ENV_BUS,
    ENV_CELL_OPTIONS,
    ENV_COUNT,
    ENV_DRAIN_MAX,
    ENV_GRACE,
    ENV_HARD_END,
    ENV_LAUNCH_KEYS,
    ENV_LEASE,
    ENV_MIRROR,
    ENV_MIRROR_LIMIT,
    ENV_NODE_COUNT,
    ENV_NODES,
    ENV_PARK,
    ENV_POD_IP,
    ENV_PORTS,
    ENV_RANK,
    ENV_SERVER,
    ENV_SERVICE_CA,
    ENV_SERVICE_URL,
    ENV_SHARED,
    ENV_TOKEN_FILE,
    ENV_USER,
    ENV_WARM,
    HEADER_PROTOCOL,
    PROTOCOL_VERSION,
    is_understood,
)
from gpulease.protocol.service import (
    Blocker,
    BudgetView,
    ClassView,
    ConnectionView,
    DeviceView,
    EndView,
    EventDelta,
    EventSnapshot,
    GrantView,
    KeepView,
    LeaseStateName,
    LeaseView,
    MessageView,
    UpgradeView,
)
from gpulease.protocol.supervisor import NodeAddress, ToSupervisor

__all__ = [
    "DEFAULT_PORTS",
    "ENV_ATTEMPT",
    "ENV_AUTOLOAD",
    "ENV_BUS",
    "ENV_CELL_OPTIONS",
    "ENV_COUNT",
    "ENV_DRAIN_MAX",
    "ENV_GRACE",
    "ENV_HARD_END",
    "ENV_LAUNCH_KEYS",
    "ENV_LEASE",
    "ENV_MIRROR",
    "ENV_MIRROR_LIMIT",
    "ENV_NODES",
    "ENV_NODE_COUNT",
    "ENV_PARK",
    "ENV_POD_IP",
    "ENV_PORTS",
    "ENV_RANK",
    "ENV_SERVER",
    "ENV_SERVICE_CA",
    "ENV_SERVICE_URL",
    "ENV_SHARED",
    "ENV_TOKEN_FILE",
    "ENV_USER",
    "ENV_WARM",
    "EXECUTE_METADATA",
    "HEADER_PROTOCOL",
    "PROTOCOL_VERSION",
    "Blocker",
    "BudgetView",
    "CellText",
    "ClassView",
    "CompanionOpen",
    "CompanionOpened",
    "ConnectionView",
    "DeviceView",
    "EndView",
    "EventDelta",
    "EventSnapshot",
    "ExecuteMetadata",
    "GrantView",
    "KeepView",
    "KernelDrained",
    "LeaseStateName",
    "LeaseView",
    "MessageView",
    "MirrorView",
    "NodeAddress",
    "ReplyMetadata",
    "ToSupervisor",
    "UpgradeView",
    "is_understood",
]
