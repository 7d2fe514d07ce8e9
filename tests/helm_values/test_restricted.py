"""The lease policy refuses all that PodSecurity's ``restricted`` does: the API server is asked.

As a label of the servers' namespace it would refuse the chart's privileged init container, so the
policy has its rules for the service's pods alone.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helm_values.conftest import Installed
from tests.helm_values.lease_pods import (
    Change,
    lease_pod,
    refusal,
    with_container,
    with_spec,
    with_volume,
)
from tests.helm_values.test_admission import policies
from tests.helpers import wait_for
from tests.providers.kubernetes.server_pods import server
from tests.providers.kubernetes.test_manifest import made

__all__ = ["policies"]  # a fixture
pytestmark = pytest.mark.cluster

APPARMOR = "container.apparmor.security.beta.kubernetes.io/companion"
CONFINED = lease_pod()["spec"]["containers"][0]["securityContext"]


def _secured(**fields: Any) -> Change:
    """Change the container's security context, with what else it has."""
    return lambda pod: pod["spec"]["containers"][0]["securityContext"].update(fields)


def _pod_secured(**fields: Any) -> Change:
    return lambda pod: pod["spec"]["securityContext"].update(fields)


def _without_seccomp(pod: dict[str, Any]) -> None:
    del pod["spec"]["securityContext"]["seccompProfile"]


def _init(**fields: Any) -> Change:
    first = {"name": "first", "image": lease_pod()["spec"]["containers"][0]["image"]}
    return with_spec(initContainers=[{**first, "securityContext": {**CONFINED, **fields}}])


#: One way, at least, for each control of the standard that Linux has.
WIDER: dict[str, Change] = {
    "host network": with_spec(hostNetwork=True),
    "host processes": with_spec(hostPID=True),
    "host port": with_container(ports=[{"containerPort": 80, "hostPort": 80}]),
    "host path": with_volume(hostPath={"path": "/srv"}),
    "file server": with_volume(nfs={"server": "files.example.org", "path": "/data"}),
    "privileged": with_container(
        securityContext={**CONFINED, "privileged": True, "allowPrivilegeEscalation": True}
    ),
    "more rights": _secured(allowPrivilegeEscalation=True),
    "capability": _secured(capabilities={"drop": ["ALL"], "add": ["SYS_PTRACE"]}),
    "kept capabilities": _secured(capabilities={"drop": ["NET_RAW"]}),
    "no seccomp": _without_seccomp,
    "seccomp off": _pod_secured(seccompProfile={"type": "Unconfined"}),
    "seccomp off in a container": _secured(seccompProfile={"type": "Unconfined"}),
    "seccomp off before it": _init(seccompProfile={"type": "Unconfined"}),
    "AppArmor off": _pod_secured(appArmorProfile={"type": "Unconfined"}),
    "AppArmor off in a container": _secured(appArmorProfile={"type": "Unconfined"}),
    "AppArmor off by its old name": lambda pod: pod["metadata"].update(
        annotations={APPARMOR: "unconfined"}
    ),
    "SELinux type": _pod_secured(seLinuxOptions={"type": "spc_t"}),
    "SELinux type of a container": _secured(seLinuxOptions={"type": "spc_t"}),
    "SELinux user": _secured(seLinuxOptions={"user": "system_u"}),
    "SELinux role": _init(seLinuxOptions={"role": "system_r"}),
    "sysctl": _pod_secured(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
    "root": _secured(runAsUser=0),
    "perhaps root": _secured(runAsNonRoot=False),
    "all of /proc": lambda pod: (
        with_spec(hostUsers=False)(pod),
        _secured(procMount="Unmasked")(pod),
    ),
    "probe of another address": with_container(
        livenessProbe={"tcpSocket": {"host": "10.0.0.1", "port": 80}}
    ),
    "hook to another address": with_container(
        lifecycle={"preStop": {"httpGet": {"host": "10.0.0.1", "port": 80}}}
    ),
}


@pytest.fixture(scope="module")
def restricted(policies: Installed) -> Iterator[str]:
    """A namespace in which the API server itself enforces the standard."""
    from testcluster.pods import delete_namespace

    name = f"{policies.system}-restricted"
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": name, "labels": enforced}
    policies.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    account = {"name": "gpulease-lease", "namespace": name}
    policies.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    wait_for(lambda: not refusal(policies.api, lease_pod(), name), 60, "a pod that is taken")
    yield name
    delete_namespace(policies.api, name)


@pytest.mark.parametrize("change", WIDER.values(), ids=WIDER.keys())
def test_what_the_standard_refuses_is_refused_of_the_service(policies, restricted, change):
    pod = lease_pod()
    change(pod)
    assert "violates PodSecurity" in refusal(policies.api, pod, restricted)
    assert "denied request: " in refusal(policies.service, pod, policies.servers)


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: None,
        _pod_secured(seccompProfile={"type": "Localhost", "localhostProfile": "ours.json"}),
        _secured(seccompProfile={"type": "RuntimeDefault"}),
        _pod_secured(seLinuxOptions={"level": "s0:c1,c2", "type": "container_t"}),
        _secured(appArmorProfile={"type": "RuntimeDefault"}),
    ],
    ids=["as made", "a profile of the site", "a container's own", "SELinux", "AppArmor"],
)
def test_what_the_standard_allows_is_allowed(policies, restricted, change):
    pod = lease_pod()
    change(pod)
    assert refusal(policies.api, pod, restricted) == ""
    assert refusal(policies.service, pod, policies.servers) == ""


@pytest.mark.parametrize(
    "loose", [{}, {"seccompProfile": {"type": "Unconfined"}, "seLinuxOptions": {"type": "spc_t"}}]
)
def test_a_lease_pod_as_it_is_made_meets_the_standard(policies, restricted, loose):
    """Also beside a server that is less confined itself."""
    pod = made(pod=server(securityContext=loose))
    pod["metadata"]["namespace"] = restricted
    assert refusal(policies.api, pod, restricted) == ""
