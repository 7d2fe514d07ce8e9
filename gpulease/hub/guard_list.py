"""What a notebook server without a GPU may have: one table for the guard and the admission policy.

A row says where in a pod's spec something stands, and how it is written as a *line*, such as
``resource memory`` or ``hostPath /srv/data``.  ``LISTED`` has the lines that every server may
have, ``USUAL`` those of usual sites, beside the chart's own; a site adds its own in the same words
(``c.GPULeaseSpawner.gpulease_allow``).  Exact names only: ``{a,b}`` stands for one of these words,
and nothing stands for anything.  No line may lead to a GPU (``tests/hub/test_usual.py`` tries each
with every way to one), so there are no instance types to which a GPU can be attached (GCP's N1),
and no resource that is a device but FUSE.  ``guard_lines`` walks the rows,
``tools/admission_policy.py`` writes the same rows as expressions of the API server's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from gpulease.hub import gpu_names

_AWS: Final = (
    "{m4,m5,m5a,m5d,m5n,m6a,m6g,m6i,m6id,m7a,m7g,m7i,m7i-flex,m8g,c4,c5,c5a,c5d,c5n,c6a,c6g,c6i,"
    "c6id,c7a,c7g,c7i,r4,r5,r5a,r5d,r5n,r6a,r6g,r6i,r6id,r7a,r7g,r7i,r8g,t2,t3,t3a,t4g}"
)
_AWS_SIZES: Final = (
    "{medium,large,xlarge,2xlarge,4xlarge,8xlarge,9xlarge,12xlarge,16xlarge,18xlarge,24xlarge,"
    "32xlarge,48xlarge}"
)
_GCP: Final = "{e2,n2,n2d,n4,c2,c2d,c3,c3d,c4,t2a,t2d}"
_TYPES: Final = (
    f"{_AWS}.{_AWS_SIZES}",
    f"{_GCP}-{{standard,highmem,highcpu}}-{{1,2,4,8,16,22,30,32,44,48,60,64,80,88,96}}",
    "e2-{micro,small,medium}",
    "Standard_{D,E,F}{2,4,8,16,20,32,48,64,96}{,s,a,as,d,ds,ads,p,ps,pds}_v{2,3,4,5,6}",
    "Standard_B{1,2,4,8,12,16,20}{s,ms}",
)
_TYPE_LABELS: Final = "{node.kubernetes.io,beta.kubernetes.io}/instance-type"
_POOLS: Final = (
    "{default,default-pool,user,users,user-pool,users-pool,user-nodes,userpool,nb-user,notebook,"
    "notebooks,jupyter,jupyterhub,jupyter-users,singleuser,student,students,general,"
    "general-purpose,standard,worker,workers,small,medium,large,xlarge,highmem,high-mem,"
    "high-memory,memory,highcpu,high-cpu,cpu,spot,preemptible}"
)
_POOL_LABELS: Final = (
    "{cloud.google.com/gke-nodepool,eks.amazonaws.com/nodegroup,alpha.eksctl.io/nodegroup-name,"
    "karpenter.sh/nodepool,agentpool,kubernetes.azure.com/agentpool,doks.digitalocean.com/node-pool,"
    "magnum.openstack.org/nodegroup,capi.stackhpc.com/node-group,node-pool,nodepool,node-purpose}"
)

#: By kind, as ``guard_list.LISTED``.
USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    # The device by which file systems run outside the kernel, by the plugins that hand it out.
    "resource": ("{github.com,smarter-devices,squat.ai}/fuse", "vpc.amazonaws.com/pod-eni"),
    "hostPath": ("/dev/fuse", "/cvmfs", "/etc/localtime", "/usr/share/zoneinfo"),
    "csi": (
        "{secrets-store.csi.k8s.io,csi.spiffe.io,csi.cert-manager.io,spiffe.csi.cert-manager.io}",
        "{gcsfuse,filestore,parallelstore,lustre}.csi.storage.gke.io",
        "{s3,efs,fsx,fsx.openzfs}.csi.aws.com",
        "{blob,file}.csi.azure.com",
        "{nfs,smb}.csi.k8s.io",
        "{cvmfs,eosxd}.csi.cern.ch",
        "{cephfs.csi.ceph.com,rook-ceph.cephfs.csi.ceph.com,csi.juicefs.com}",
        "{csi.sharedresource.openshift.io,csi-image.warm-metal.tech}",
    ),
    # What service meshes' init containers need in the pod's own network, in those alone.
    "capability": (
        "NET_ADMIN in {istio-init,istio-validation,linkerd-init,consul-connect-inject-init,"
        "kuma-init}",
    ),
    "runtimeClassName": ("gvisor",),
    "schedulerName": ("gke.io/optimize-utilization-scheduler",),
    # Accounts that stand for the server towards a cloud.
    "serviceAccountName": (
        "{user-sa,cloud-user-sa,irsa,pangeo}",
        "{,user-,jupyter-,jupyterhub-,notebook-,singleuser-}workload-identity{,-sa,-user}",
        "{gcs,s3,blob,bucket,data}-{reader,user,access}{,-sa}",
        "{singleuser,singleuser-sa,jupyter,jupyter-sa,jupyter-user,jupyter-user-sa,jupyterhub-user,"
        "jupyterhub-user-sa,jupyterhub-singleuser,notebook,notebook-sa,notebook-user}",
    ),
    "node": (
        *(f"{_TYPE_LABELS}={types}" for types in _TYPES),
        f"{_POOL_LABELS}={_POOLS}",
        f"karpenter.k8s.aws/instance-family={_AWS}",
        "karpenter.k8s.aws/instance-category={c,m,r,t}",
        f"cloud.google.com/machine-family={_GCP}",
        "cloud.google.com/compute-class={Balanced,Scale-Out}",
        "cloud.google.com/gke-{spot,preemptible}=true",
        "cloud.google.com/gke-provisioning={spot,preemptible,standard}",
        "eks.amazonaws.com/capacityType={SPOT,ON_DEMAND}",
        "karpenter.sh/capacity-type={spot,on-demand}",
        "kubernetes.azure.com/scalesetpriority={spot,regular}",
        "kubernetes.azure.com/mode=user",
        "node-role.kubernetes.io/{worker,user,compute}{,=,=true}",
        "node.kubernetes.io/lifecycle={spot,normal}",
        "{node.kubernetes.io,node-role.kubernetes.io}/spot{,=,=true}",
        "sandbox.gke.io/runtime=gvisor",
        "iam.gke.io/gke-metadata-server-enabled=true",
        "2i2c/hub-name={prod,staging}",
    ),
    "toleration": (
        "cloud.google.com/gke-{spot,preemptible}{,=true}",
        "cloud.google.com/gke-provisioning=spot",
        "kubernetes.azure.com/scalesetpriority{,=spot}",
        "eks.amazonaws.com/capacityType{,=SPOT}",
        "karpenter.sh/capacity-type{,=spot}",
        "{spot,spotInstance,spot-instance,preemptible}{,=true}",
        "{node.kubernetes.io,node-role.kubernetes.io}/spot{,=true}",
        "{lifecycle,node.kubernetes.io/lifecycle,node-lifecycle}={spot,Ec2Spot}",
        "{dedicated,purpose,node-purpose}={user,users,notebook,notebooks,jupyter,jupyterhub}",
        "kubernetes.io/arch=arm64",
        "sandbox.gke.io/runtime=gvisor",
    ),
    "spread": ("failure-domain.beta.kubernetes.io/{zone,region}",),
}


CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

#: How what stands at a row's place becomes lines: each key with a quantity, each pair, the value
#: itself, a switch that is on, a condition on nodes, a toleration, pods to be beside, a volume.
Form = Literal["key", "pair", "value", "switch", "expression", "toleration", "term", "volume"]


@dataclass(frozen=True)
class Row:
    """One place of a pod's spec.

    Attributes:
        kind: the first word of its lines.
        at: field names joined by dots; ``[]`` is each item of a list, a leading ``*.`` each
            container of each kind.
        form: how what stands there is written.
    """

    kind: str
    at: str
    form: Form


_NODES: Final = "affinity.nodeAffinity"
_TERMS: Final = f"{_NODES}.{_REQUIRED}.nodeSelectorTerms[]"
_WISHES: Final = f"{_NODES}.{_PREFERRED}[].preference"
_PODS: Final = "affinity.podAffinity"

ROWS: Final[tuple[Row, ...]] = (
    Row("resource", "*.resources.limits", "key"),
    Row("resource", "*.resources.requests", "key"),
    Row("resource", "resources.limits", "key"),
    Row("resource", "resources.requests", "key"),
    Row("resource", "overhead", "key"),
    Row("volume", "volumes[]", "volume"),
    Row("volumeDevice", "*.volumeDevices[].devicePath", "value"),
    Row("privilege", "*.securityContext.privileged", "switch"),
    Row("privilege", "hostPID", "switch"),
    Row("privilege", "hostIPC", "switch"),
    Row("privilege", "hostNetwork", "switch"),
    Row("privilege", "securityContext.windowsOptions.hostProcess", "switch"),
    Row("privilege", "*.securityContext.windowsOptions.hostProcess", "switch"),
    Row("procMount", "*.securityContext.procMount", "value"),
    Row("capability", "*.securityContext.capabilities.add[]", "value"),
    Row("runtimeClassName", "runtimeClassName", "value"),
    Row("schedulerName", "schedulerName", "value"),
    Row("priorityClassName", "priorityClassName", "value"),
    Row("serviceAccountName", "serviceAccountName", "value"),
    Row("serviceAccountName", "serviceAccount", "value"),  # its old name, which still counts
    Row("node", "nodeSelector", "pair"),
    Row("node", f"{_TERMS}.matchExpressions[]", "expression"),
    Row("node", f"{_TERMS}.matchFields[]", "expression"),
    Row("node", f"{_WISHES}.matchExpressions[]", "expression"),
    Row("node", f"{_WISHES}.matchFields[]", "expression"),
    Row("toleration", "tolerations[]", "toleration"),
    Row("spread", "topologySpreadConstraints[].topologyKey", "value"),
    Row("pod", f"{_PODS}.{_REQUIRED}[]", "term"),
    Row("pod", f"{_PODS}.{_PREFERRED}[].podAffinityTerm", "term"),
)

#: What every server may have, by kind: ``{a,b}`` stands for one of these words.  A star stands for
#: any name that the site chose (a zone, the chart's release) and that names no GPU.
LISTED: Final[Mapping[str, tuple[str, ...]]] = {
    "resource": (
        "cpu",
        "memory",
        "ephemeral-storage",
        "hugepages-{64Ki,1Mi,2Mi,32Mi,512Mi,1Gi,2Gi,16Gi}",
    ),
    "volume": (
        *("emptyDir", "configMap", "secret", "projected", "downwardAPI", "image"),
        *("persistentVolumeClaim", "ephemeral", "nfs", "cephfs", "glusterfs", "azureFile"),
    ),
    # What container runtimes give to every container by themselves.
    "capability": (
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
        *("NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    ),
    "procMount": ("Default",),
    # Kubernetes' own, and the Zero to JupyterHub chart's, which begin with the release's name.
    "schedulerName": ("default-scheduler", "{,*-}user-scheduler"),
    "priorityClassName": ("*-default-priority",),
    "serviceAccountName": ("default",),
    "node": (
        "kubernetes.io/os={linux,windows}",
        "kubernetes.io/arch={amd64,arm,arm64,ppc64le,riscv64,s390x}",
        "hub.jupyter.org/node-purpose=user",
        *("topology.kubernetes.io/zone=*", "topology.kubernetes.io/region=*"),
    ),
    "toleration": (
        *("hub.jupyter.org/dedicated=user", "hub.jupyter.org_dedicated=user"),
        *("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"),
        "node.kubernetes.io/{memory,disk,pid}-pressure",
    ),
    "spread": ("kubernetes.io/hostname", "topology.kubernetes.io/{zone,region}"),
    "pod": tuple(
        f"{key}={value}"
        for key in ("component", "app.kubernetes.io/component")
        for value in ("hub", "proxy", "singleuser-server")
    ),
}
#: A volume's kinds that have a line of their own, by the field that tells them apart.
VOLUMES_BY: Final[Mapping[str, str]] = {"hostPath": "path", "csi": "driver", "flexVolume": "driver"}
#: The other kinds of volumes that there are, each with its name as its line.
VOLUMES_ELSE: Final = (
    *("awsElasticBlockStore", "azureDisk", "cinder", "fc", "flocker", "gcePersistentDisk"),
    *("gitRepo", "iscsi", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO"),
    *("storageos", "vsphereVolume"),
)
#: Of these kinds a site's own configuration of the spawner is on the list, too.
SEEDED: Final = frozenset(
    {
        *("runtimeClassName", "schedulerName", "priorityClassName", "serviceAccountName"),
        *("node", "toleration", "spread", "pod"),
    }
)

#: The chart's init container that closes the metadata address by a rule of the pod's own network.
#: It is privileged, so nothing of it may be other than the chart makes it, but for the address.
BLOCKER: Final = "block-cloud-metadata"
BLOCKER_COMMAND: Final = (
    *("iptables", "--append", "OUTPUT", "--protocol", "tcp", "--destination", ""),
    *("--destination-port", "80", "--jump", "DROP"),
)
BLOCKER_IMAGE: Final = "quay.io/jupyterhub/k8s-network-tools:*"
BLOCKER_CAPABILITY: Final = "NET_ADMIN"
#: By what else a container runs something, or something else.
BLOCKER_WITHOUT: Final = (
    *("args", "envFrom", "lifecycle", "livenessProbe", "readinessProbe", "restartPolicy"),
    *("startupProbe", "volumeDevices", "workingDir"),
)
#: The API server mounts an account's token here by itself.
BLOCKER_MOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


def expression(patterns: Iterable[str]) -> str:
    """Return a regular expression (RE2's and Python's) that takes these lines and no other."""
    return "^(?:" + "|".join(_escaped(each) for each in patterns) + ")$"


def _escaped(pattern: str) -> str:
    return re.sub(r"[.+?()\[\]{}^$|\\]", r"\\\g<0>", pattern).replace("*", ".*")


@lru_cache(maxsize=64)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(expression(patterns), re.DOTALL)


def expression_of(table: Mapping[str, tuple[str, ...]]) -> str:
    """Return the expression of a shipped table's lines, in which ``{a,b}`` is one of these."""
    lines = expression(f"{kind} {each}" for kind in table for each in table[kind])
    return re.sub(r"\\\{(.*?)\\\}", lambda found: f"(?:{found[1].replace(',', '|')})", lines)


_LISTED, _USUAL = (re.compile(expression_of(each)) for each in (LISTED, USUAL))


def is_listed(line: str) -> bool:
    """Whether every server may have this."""
    if _USUAL.fullmatch(line) is not None:
        return True
    return _LISTED.fullmatch(line) is not None and not gpu_names.is_gpu_node("", line)


def allows(patterns: tuple[str, ...], line: str) -> bool:
    """Whether one of the patterns takes the line."""
    return _compiled(patterns).fullmatch(line) is not None
