"""Where one test cluster keeps everything, and the names and addresses it uses.

Two clusters on one machine differ in their number: network namespace, control groups and the
record under /run carry it.  Addresses repeat, for each cluster has a network of its own.
"""

import json
from dataclasses import dataclass
from pathlib import Path

#: Shared by every cluster: each lives in its own network namespace.
NODE_ADDRESS = "198.18.0.1"
POD_NETWORK = "198.18.0.0/24"
SERVICE_NETWORK = "198.19.0.0/24"
FIRST_SERVICE = "198.19.0.1"
KWOK_POD_NETWORK = "198.18.128.0/17"
API_PORT = 6443
KUBELET_PORT = 10250
NODE = "node1"

RECORDS = Path("/run/gpulease-clusters")


@dataclass(frozen=True)
class Layout:
    """One cluster's place on the machine."""

    directory: Path
    number: int

    @property
    def network_namespace(self) -> str:
        return "gpl-k8s" if self.number == 0 else f"gpl-k8s-{self.number}"

    @property
    def control_group(self) -> str:
        return f"gpl-k8s-{self.number}"

    @property
    def record(self) -> Path:
        """Name the file that says who holds this number."""
        return RECORDS / f"{self.number}.json"

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    @property
    def config(self) -> Path:
        return self.directory / "config"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def pids(self) -> Path:
        return self.directory / "pids"

    @property
    def containerd_socket(self) -> Path:
        return self.directory / "containerd.sock"

    @property
    def kubelet_root(self) -> Path:
        return self.directory / "kubelet"

    @property
    def pod_resources_socket(self) -> Path:
        return self.kubelet_root / "pod-resources" / "kubelet.sock"

    @property
    def plugins(self) -> Path:
        """Name the directory that the kubelet sees as /var/lib/kubelet/device-plugins."""
        return self.directory / "plugins"

    @property
    def volumes(self) -> Path:
        """Name the directory for host paths that tests mount into pods."""
        return self.directory / "volumes"

    @property
    def node_grace(self) -> Path:
        """Name the file with the seconds after which a silent node is lost, where not the usual."""
        return self.config / "node-grace"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.jsonl"

    @property
    def devices(self) -> Path:
        """Name the file that says which pretend devices the plugin shows."""
        return self.config / "devices.json"

    @property
    def allocations(self) -> Path:
        """Name the file with a line for each device that the plugin handed out."""
        return self.logs / "allocations.jsonl"

    def make(self) -> None:
        """Create the directories that nobody else creates."""
        for path in (self.pki, self.config, self.logs, self.pids, self.plugins, self.volumes):
            path.mkdir(parents=True, exist_ok=True)

    def save(self) -> None:
        """Leave a note in the cluster's own directory so that later commands find it."""
        note = {"number": self.number, "directory": str(self.directory)}
        (self.directory / "cluster.json").write_text(json.dumps(note) + "\n", encoding="utf-8")

    @staticmethod
    def load(directory: Path) -> "Layout":
        """Read that note; raises FileNotFoundError where no cluster was started."""
        note = json.loads((directory / "cluster.json").read_text(encoding="utf-8"))
        return Layout(directory=directory.resolve(), number=note["number"])
