"""How each program of the cluster is started, and when it is up: tables, no actions."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testcluster.build import ETCD, beside_program
from testcluster.layout import (
    API_PORT,
    KWOK_POD_NETWORK,
    NODE,
    NODE_ADDRESS,
    SERVICE_NETWORK,
    Layout,
)

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
NODE_PROGRAMS = ("containerd", "kubelet", "device-plugin")
ORDER = (*CONTROL_PLANE, *NODE_PROGRAMS)
#: After so many silent seconds a node is lost: within a test's patience.
NODE_GRACE = 16

Command = Callable[[Layout, Path], list[str]]


@dataclass(frozen=True)
class Component:
    """One program: its name, its command line from layout and programs' directory."""

    name: str
    command: Command


def _etcd(layout: Layout, programs: Path) -> list[str]:
    client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    return [
        *(str(beside_program(ETCD)), "--name", "e1", "--data-dir", str(layout.directory / "etcd")),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"e1={peer}", "--unsafe-no-fsync", "--log-level", "warn"),
        "--logger=zap",
    ]


def _apiserver(layout: Layout, programs: Path) -> list[str]:
    pki = layout.pki
    return [
        str(programs / "kube-apiserver"),
        "--etcd-servers=http://127.0.0.1:2379",
        f"--bind-address={NODE_ADDRESS}",
        f"--secure-port={API_PORT}",
        f"--advertise-address={NODE_ADDRESS}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--anonymous-auth=false",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={pki}/sa.key",
        f"--service-account-key-file={pki}/sa.pub",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
        "--profiling=false",
        f"--audit-policy-file={layout.config}/audit.yaml",
        f"--audit-log-path={layout.audit_log}",
    ]


def _controller_manager(layout: Layout, programs: Path) -> list[str]:
    pki = layout.pki
    return [
        str(programs / "kube-controller-manager"),
        *_as_client(layout, "controller-manager"),
        f"--service-account-private-key-file={pki}/sa.key",
        f"--root-ca-file={pki}/ca.crt",
        "--use-service-account-credentials=true",
        "--allocate-node-cidrs=false",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--node-monitor-period=1s",
        f"--node-monitor-grace-period={_node_grace(layout)}s",
    ]


def _node_grace(layout: Layout) -> int:
    """Return after how many silent seconds a node is lost."""
    given = layout.node_grace
    return int(given.read_text(encoding="ascii")) if given.exists() else NODE_GRACE


def _scheduler(layout: Layout, programs: Path) -> list[str]:
    return [str(programs / "kube-scheduler"), *_as_client(layout, "scheduler")]


def _as_client(layout: Layout, who: str) -> list[str]:
    kubeconfig = f"{layout.config}/{who}.kubeconfig"
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--kube-api-qps=300",
        "--kube-api-burst=600",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
    ]


def _containerd(layout: Layout, programs: Path) -> list[str]:
    return ["containerd", "--config", str(layout.config / "containerd.toml")]


def _kubelet(layout: Layout, programs: Path) -> list[str]:
    return [
        str(programs / "kubelet"),
        f"--config={layout.config}/kubelet.yaml",
        f"--kubeconfig={layout.config}/kubelet.kubeconfig",
        f"--root-dir={layout.kubelet_root}",
        f"--hostname-override={NODE}",
        f"--node-ip={NODE_ADDRESS}",
    ]


def _device_plugin(layout: Layout, programs: Path) -> list[str]:
    module = "testcluster.device_plugin"
    return [sys.executable, "-m", module, str(layout.devices), str(layout.allocations)]


def _kwok(layout: Layout, programs: Path) -> list[str]:
    return [
        str(programs / "kwok"),
        f"--kubeconfig={layout.kubeconfig}",
        f"--config={programs}/kwok.yaml",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
        f"--node-ip={NODE_ADDRESS}",
        f"--cidr={KWOK_POD_NETWORK}",
        "--server-address=127.0.0.1:10247",
    ]


COMPONENTS = {
    component.name: component
    for component in (
        Component("etcd", _etcd),
        Component("kube-apiserver", _apiserver),
        Component("kube-controller-manager", _controller_manager),
        Component("kube-scheduler", _scheduler),
        Component("containerd", _containerd),
        Component("kubelet", _kubelet),
        Component("device-plugin", _device_plugin),
        Component("kwok", _kwok),
    )
}
