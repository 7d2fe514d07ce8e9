"""What servers of usual sites have beside the chart's own: lines of the guard's list.

Exact names only: ``{a,b}`` stands for one of these words, and nothing stands for anything.  No line
may lead to a GPU (``tests/hub/test_usual.py`` tries each with every way to one), so there are no
instance types to which a GPU can be attached (GCP's N1), and no resource that is a device but FUSE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
