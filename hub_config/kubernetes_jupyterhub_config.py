"""A hub on Kubernetes without the Zero to JupyterHub chart: copy it and change it.

With the hub's chart take the values that gpulease's chart prints instead. Lease service, node
agents, their rights and policies are in gpulease's chart; docs/install-kubernetes.md installs it.
"""

import os

from gpulease.hub import setup_gpulease

c = get_config()

# Your own settings come first: setup_gpulease adds to them and never replaces them.
c.JupyterHub.bind_url = "http://:8000/"
c.JupyterHub.hub_bind_url = "http://0.0.0.0:8081"
c.JupyterHub.hub_connect_url = "http://hub:8081"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.KubeSpawner.namespace = os.environ.get("POD_NAMESPACE", "jupyterhub")
c.KubeSpawner.image = "quay.io/jupyter/scipy-notebook:2026-06-01"  # with gpulease[lab] in it
c.KubeSpawner.cpu_guarantee = 0.5
c.KubeSpawner.mem_limit = "4G"
c.KubeSpawner.storage_pvc_ensure = True
c.KubeSpawner.pvc_name_template = "claim-{user_server}"
c.KubeSpawner.storage_capacity = "10Gi"
# ReadWriteMany lets a lease pod mount the home; with ReadWriteOnce it gets a mirror of it.
c.KubeSpawner.storage_access_modes = ["ReadWriteMany"]
c.KubeSpawner.volumes = [
    {"name": "home", "persistentVolumeClaim": {"claimName": "claim-{user_server}"}}
]
c.KubeSpawner.volume_mounts = [{"name": "home", "mountPath": "/home/jovyan"}]
c.KubeSpawner.fs_gid = 100
# Servers stay off nodes with GPUs: those are for leases.
c.KubeSpawner.node_affinity_required = [
    {
        "matchExpressions": [
            {"key": "nvidia.com/gpu.present", "operator": "NotIn", "values": ["true"]},
            {"key": "gpulease/pool", "operator": "DoesNotExist"},
        ]
    }
]
# One namespace for each user (docs/kubernetes.md says what hub and service then need):
# c.KubeSpawner.enable_user_namespaces = True
# c.KubeSpawner.user_namespace_template = "jupyter-{username}"

# A server whose pod would have a GPU is refused; "strip" takes the GPU out instead.
c.GPULeaseSpawner.gpulease_guard = "refuse"

setup_gpulease(
    c,
    # The lease service runs by itself, so that a restart of the hub leaves running leases alone.
    # Notebook servers reach it at the same address, whatever the hub's proxy does with https.
    service_url="http://gpulease.gpulease-system:9980",
    service_token=os.environ["GPULEASE_SERVICE_TOKEN"],
    # Who teaches which group, and who administers GPUs besides the hub's admins.
    instructors={"cs101": ["ines"]},
    admins=[],
)
