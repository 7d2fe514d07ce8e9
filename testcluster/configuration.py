"""The files that the cluster's programs read: a pure function from a layout to texts."""

import json
from pathlib import Path
from typing import Any

from testcluster.layout import KUBELET_PORT, NODE_ADDRESS, POD_NETWORK, Layout

PAUSE_IMAGE = "local.test/pause:1"


def files(layout: Layout) -> dict[Path, str]:
    """Return each file's path and text."""
    config = layout.config
    return {
        config / "containerd.toml": _containerd(layout),
        config / "cni" / "10-k8s.conflist": json.dumps(_cni(layout)),
        config / "kubelet.yaml": json.dumps(_kubelet(layout), indent=1),
        config / "audit.yaml": json.dumps(_audit(), indent=1),
        config / "resolv.conf": "",
    }


def _containerd(layout: Layout) -> str:
    directory = layout.directory
    return f"""\
version = 2
root = "{directory}/containerd/root"
state = "{directory}/containerd/state"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.internal.v1.opt"]
[grpc]
  address = "{layout.containerd_socket}"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{PAUSE_IMAGE}"
  disable_tcp_service = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{layout.config}/cni"
"""


def _cni(layout: Layout) -> dict[str, Any]:
    addresses = {
        "type": "host-local",
        "dataDir": f"{layout.directory}/cni-addresses",
        "ranges": [[{"subnet": POD_NETWORK, "rangeStart": "198.18.0.10"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": addresses,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "k8s", "plugins": [bridge, ports]}


def _kubelet(layout: Layout) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "port": KUBELET_PORT,
        "readOnlyPort": 0,
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.pki / "kubelet-server.crt"),
        "tlsPrivateKeyFile": str(layout.pki / "kubelet-server.key"),
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.control_group}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "resolvConf": str(layout.config / "resolv.conf"),
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": False,
        "nodeStatusUpdateFrequency": "1s",
        "shutdownGracePeriod": "0s",
        "shutdownGracePeriodCriticalPods": "0s",
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "podLogsDir": str(layout.directory / "pod-logs"),
        "maxPods": 200,
    }


def _audit() -> dict[str, Any]:
    """Record every request of service accounts and people, with its body; the cluster's own not."""
    own = [
        "system:kube-controller-manager",
        "system:kube-scheduler",
        "system:apiserver",
    ]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": own},
            {"level": "None", "userGroups": ["system:nodes"]},
            {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
            {"level": "None", "nonResourceURLs": ["/healthz*", "/readyz*", "/livez*", "/api*"]},
            {"level": "Request"},
        ],
    }
