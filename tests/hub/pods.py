"""Pods as the API server reads them: a clean one, and every way a GPU comes into one."""

import copy
from typing import Any

Change = dict[str, Any]


#: What the clean pod has beside the guard's own list: a site would allow it by these lines.
ALLOW = ("hostPath /srv/data", "node zone=*")


def clean_pod() -> dict[str, Any]:
    """A server's pod such as a site with profiles, sidecars and shared volumes makes it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "jupyter-stu",
            "labels": {"component": "singleuser-server", "hami.io/webhook": "ignore"},
            "annotations": {"hub.jupyter.org/username": "stu"},
        },
        "spec": {
            "containers": [
                {
                    "name": "notebook",
                    "image": "quay.example/notebook",
                    "env": [
                        {"name": "CUDA_VISIBLE_DEVICES", "value": ""},
                        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
                    ],
                    "resources": {
                        "requests": {"cpu": "100m", "memory": "1Gi"},
                        "limits": {"memory": "2Gi", "nvidia.com/gpu": "0", "github.com/fuse": "1"},
                    },
                    "volumeMounts": [{"name": "home", "mountPath": "/home/stu"}],
                    "securityContext": {"privileged": False, "runAsUser": 1000},
                },
                {
                    "name": "sidecar",
                    "image": "quay.example/sidecar",
                    "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
                },
            ],
            "initContainers": [
                {
                    "name": "prepare",
                    "image": "quay.example/prepare",
                    "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}],
                }
            ],
            "volumes": [
                {"name": "home", "persistentVolumeClaim": {"claimName": "claim-stu"}},
                {"name": "data", "hostPath": {"path": "/srv/data"}},
            ],
            "nodeSelector": {"hub.jupyter.org/node-purpose": "user", "gpu": "false"},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "nvidia.com/gpu.present", "operator": "DoesNotExist"},
                                    {"key": "gpulease/pool", "operator": "DoesNotExist"},
                                    {
                                        "key": "topology.kubernetes.io/zone",
                                        "operator": "In",
                                        "values": ["a", "b"],
                                    },
                                ]
                            }
                        ]
                    }
                }
            },
            "tolerations": [
                {
                    "key": "hub.jupyter.org/dedicated",
                    "operator": "Equal",
                    "value": "user",
                    "effect": "NoSchedule",
                }
            ],
            "schedulerName": "jupyterhub-user-scheduler",
            "runtimeClassName": "gvisor",
            "securityContext": {"fsGroup": 100},
        },
    }


def changed(change: Change) -> dict[str, Any]:
    """A clean pod with ``change`` merged in: dicts by key, lists appended, the rest replaced."""
    pod = clean_pod()
    merge(pod, copy.deepcopy(change))
    return pod


def merge(target: Any, change: Change) -> None:
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            merge(target[key], value)
        elif isinstance(value, list) and isinstance(target.get(key), list):
            target[key] += value
        else:
            target[key] = value


def spec(**change: Any) -> Change:
    return {"spec": change}


def container(kind: str = "containers", **change: Any) -> Change:
    return spec(**{kind: [{"name": "extra", "image": "quay.example/extra", **change}]})


def resources(name: str, quantity: Any = "1", kind: str = "containers") -> Change:
    return container(kind, resources={"limits": {name: quantity}})


def required(*terms: list[Any]) -> Change:
    wanted = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return spec(
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": wanted}}
    )


def preferred(*expressions: Any) -> Change:
    wanted = [{"weight": 1, "preference": {"matchExpressions": list(expressions)}}]
    return spec(
        affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wanted}}
    )


def required_fields(*terms: list[Any]) -> Change:
    wanted = {"nodeSelectorTerms": [{"matchFields": term} for term in terms]}
    return spec(
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": wanted}}
    )


def beside(selector: Any, topology: str = "kubernetes.io/hostname", *, weight: int = 0) -> Change:
    """Affinity to other pods: required, or preferred with a weight."""
    term = {"labelSelector": selector, "topologyKey": topology}
    kind = "preferred" if weight else "required"
    wanted = [{"weight": weight, "podAffinityTerm": term}] if weight else [term]
    return spec(affinity={"podAffinity": {f"{kind}DuringSchedulingIgnoredDuringExecution": wanted}})


def marked(**marks: str) -> Change:
    return {"metadata": {"labels": {key.replace("__", "/"): v for key, v in marks.items()}}}


def expression(key: str, operator: str = "Exists", *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def node_volume(path: str) -> Change:
    return spec(
        volumes=[{"name": "node", "hostPath": {"path": path}}],
        initContainers=[
            {"name": "extra", "volumeMounts": [{"name": "node", "mountPath": "/anywhere"}]}
        ],
    )


HOST = ("hostPID", "hostIPC", "hostNetwork")
_MOUNTED_LIST = [
    {"name": "devices", "mountPath": "/var/run//x/../nvidia-container-devices/all"},
]
_GFD = "nvidia.com/gpu.product"
_BOTH = {"limits": {"amd.com/gpu": 1}, "requests": {"amd.com/gpu": 1}}
_NODES = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_PODS = "spec.affinity.podAffinity"
_DRIVER = {"matchLabels": {"app": "nvidia-device-plugin-daemonset"}}

#: (rule, a change that breaks it, the place the guard names).
BAD: list[tuple[str, Change, str]] = [
    # Every vendor's extended resources, by name, in every kind of container.
    *(
        ("device_resource", resources(name), f"spec.containers[2].resources.limits.{name}")
        for name in (
            "nvidia.com/gpu",
            "nvidia.com/gpu.shared",
            "nvidia.com/mig-1g.5gb",
            "nvidia.com/mig-1g.10gb.me",
            "nvidia.com/gpumem-percentage",
            "nvidia.com/gpucores",
            "amd.com/gpu",
            "gpu.intel.com/i915",
            "gpu.intel.com/xe",
            "habana.ai/gaudi",
            "huawei.com/Ascend910",
            "aliyun.com/gpu-mem",
            "nvshare.com/gpu",
            "bitfusion.io/gpu-amount",
            "volcano.sh/vgpu-number",
            "koordinator.sh/gpu-core",
            "tencent.com/vcuda-core",
            "cambricon.com/mlu",
            "google.com/tpu",
            "aws.amazon.com/neuroncore",
            "microsoft.com/directx",
            "hygon.com/dcunum",
            "unheard-of.example/gpu",
            "deviceclass.resource.kubernetes.io/gpu.nvidia.com",
            "NVIDIA.COM/GPU",
            "smarter-devices/nvidia0",
            "squat.ai/dri",
            "cloud-tpus.google.com/v3",
            "aws.amazon.com/neurondevice",
        )
    ),
    (
        "device_resource",
        resources("nvidia.com/gpu", 1, "initContainers"),
        "spec.initContainers[1].resources.limits.nvidia.com/gpu",
    ),
    (
        "device_resource",
        resources("nvidia.com/gpu", "1k", "ephemeralContainers"),
        "spec.ephemeralContainers[0].resources.limits.nvidia.com/gpu",
    ),
    (
        "device_resource",
        container(resources={"requests": {"nvidia.com/gpu": "1"}}),
        "spec.containers[2].resources.requests.nvidia.com/gpu",
    ),
    (
        "device_resource",
        spec(resources={"limits": {"nvidia.com/gpu": "1", "cpu": "2"}}),
        "spec.resources.limits.nvidia.com/gpu",
    ),
    (
        "device_resource",
        spec(overhead={"nvidia.com/gpu": "1", "cpu": "1"}),
        "spec.overhead.nvidia.com/gpu",
    ),
    (
        "device_resource",
        container("initContainers", restartPolicy="Always", resources=_BOTH),
        "spec.initContainers[1].resources.requests.amd.com/gpu",
    ),
    # Claims, and what opens others' devices.
    ("claim", spec(resourceClaims=[{"name": "gpu"}]), "spec.resourceClaims[0]"),
    (
        "claim",
        container(resources={"claims": [{"name": "gpu"}]}),
        "spec.containers[2].resources.claims[0]",
    ),
    ("claim", spec(resources={"claims": [{"name": "gpu"}]}), "spec.resources.claims[0]"),
    (
        "admin_access",
        {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}},
        "metadata.labels.resource.kubernetes.io/admin-access",
    ),
    (
        "admin_access",
        spec(extension={"requests": [{"adminAccess": True}]}),
        "spec.extension.requests[0].adminAccess",
    ),
    # The way to nodes with GPUs.
    *(
        ("node_placement", spec(nodeSelector={key: value}), f"spec.nodeSelector.{key}")
        for key, value in (
            (_GFD, "NVIDIA-A100-SXM4-40GB"),
            ("nvidia.com/gpu.present", "true"),
            ("cloud.google.com/gke-accelerator", "nvidia-l4"),
            ("k8s.amazonaws.com/accelerator", "nvidia-tesla-t4"),
            ("karpenter.k8s.aws/instance-gpu-count", "1"),
            ("feature.node.kubernetes.io/pci-0302_10de.present", "true"),
            ("kubernetes.azure.com/accelerator", "nvidia"),
            ("node-role.kubernetes.io/gpu", ""),
            ("gpulease/pool", "cards"),
            ("pool", "gpu-a100"),
            ("node.kubernetes.io/instance-type", "p4d.24xlarge"),
            ("node.kubernetes.io/instance-type", "Standard_NC24ads_A100_v4"),
            ("node.kubernetes.io/instance-type", "a2-highgpu-1g"),
            ("node.kubernetes.io/instance-type", "p6-b200.48xlarge"),
            ("node.kubernetes.io/instance-type", "g4-standard-48"),
            ("cloud.google.com/compute-class", "Accelerator"),
            ("pool", "h100"),
            *(("pool", card) for card in ("b200", "t4", "l4", "a10", "a10g", "a40", "h20", "k80")),
            *(("pool", card) for card in ("p100", "mi250", "MI300X", "mi210", "gb200", "l40s")),
            ("karpenter.k8s.aws/instance-family", "g5"),
            ("karpenter.k8s.aws/instance-family", "p5en"),
            ("node.kubernetes.io/instance-type", "g5.xlarge"),
            ("node.kubernetes.io/instance-type", "a3-megagpu-8g"),
            ("node.kubernetes.io/instance-type", "a4x-highgpu-4g"),
            ("kubernetes.io/hostname", "node-b200-7"),
            ("kubernetes.io/hostname", "dgx-a100-01"),
            # "No" of labels that stand on nodes with GPUs only.
            ("nvidia.com/mig.capable", "false"),
            ("nvidia.com/mps.capable", "false"),
            ("nvidia.com/vgpu.present", "false"),
            ("nvidia.com/gpu.sharing-strategy", "none"),
            ("nvidia.com/gpu.compute.minor", "0"),
            ("nvidia.com/gpu.count", "0"),
            ("nvidia.com/cuda.runtime-version.minor", "0"),
            ("nvidia.com/gpu.deploy.driver", "false"),
            ("cloud.google.com/gke-gpu-sharing-strategy", "none"),
            ("amd.com/gpu.cu-count", "0"),
            ("gpulease/pool", "none"),
        )
    ),
    ("node_placement", spec(nodeName="anywhere"), "spec.nodeName"),
    (
        "node_placement",
        required_fields([expression("metadata.name", "In", "gpu-1")]),
        f"{_NODES}.nodeSelectorTerms[1].matchFields[0]",
    ),
    (
        "node_placement",
        required([expression("nvidia.com/gpu.present", "NotIn", "false")]),
        f"{_NODES}.nodeSelectorTerms[1].matchExpressions[0]",
    ),
    *(
        (
            "node_placement",
            required([expression(f"nvidia.com/{key}", operator, value)]),
            f"{_NODES}.nodeSelectorTerms[1].matchExpressions[0]",
        )
        for key, operator, value in (
            ("gpu.count", "Gt", "0"),
            ("gpu.memory", "Gt", "1"),
            ("gpu.count", "Lt", "9"),
            ("gpu.count", "Lt", "1"),
            ("gpu.compute.minor", "Lt", "1"),
            ("mig.capable", "In", "false"),
            ("gpu.sharing-strategy", "In", "None"),
        )
    ),
    (
        "node_placement",
        beside(_DRIVER),
        f"{_PODS}.requiredDuringSchedulingIgnoredDuringExecution[0]",
    ),
    (
        "node_placement",
        beside({"matchExpressions": [expression("gpulease/lease")]}, weight=100),
        f"{_PODS}.preferredDuringSchedulingIgnoredDuringExecution[0]",
    ),
    (
        "node_placement",
        beside({"matchLabels": {"app": "x"}}, "nvidia.com/gpu.product"),
        f"{_PODS}.requiredDuringSchedulingIgnoredDuringExecution[0]",
    ),
    (
        "node_placement",
        spec(
            topologySpreadConstraints=[
                {
                    "maxSkew": 99,
                    "topologyKey": "nvidia.com/gpu.product",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {},
                }
            ]
        ),
        "spec.topologySpreadConstraints[0]",
    ),
    (
        "node_placement",
        required([expression(_GFD)]),
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        ".nodeSelectorTerms[1].matchExpressions[0]",
    ),
    (
        "node_placement",
        required([expression("zone", "In", "a"), expression("pool", "In", "cpu", "gpu")]),
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        ".nodeSelectorTerms[1].matchExpressions[1]",
    ),
    (
        "node_placement",
        required([expression("nvidia.com/gpu.memory", "Gt", "39000")]),
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        ".nodeSelectorTerms[1].matchExpressions[0]",
    ),
    (
        "node_placement",
        preferred(expression("zone", "In", "a"), expression(_GFD)),
        "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]",
    ),
    ("toleration", spec(tolerations=[{"operator": "Exists"}]), "spec.tolerations[1]"),
    (
        "toleration",
        spec(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]),
        "spec.tolerations[1]",
    ),
    (
        "toleration",
        spec(tolerations=[{"key": "gpulease/pool", "operator": "Exists"}]),
        "spec.tolerations[1]",
    ),
    (
        "toleration",
        spec(tolerations=[{"key": "dedicated", "operator": "Equal", "value": "gpu"}]),
        "spec.tolerations[1]",
    ),
    (
        "toleration",
        spec(tolerations=[{"key": "nvidia.com/mig.capable", "value": "false"}]),
        "spec.tolerations[1]",
    ),
    (
        "toleration",
        spec(tolerations=[{"key": "node.kubernetes.io/gpu-pressure", "operator": "Exists"}]),
        "spec.tolerations[1]",
    ),
    ("runtime_class", spec(runtimeClassName="nvidia"), "spec.runtimeClassName"),
    ("runtime_class", spec(runtimeClassName="nvidia-cdi"), "spec.runtimeClassName"),
    ("scheduler", spec(schedulerName="kai-scheduler"), "spec.schedulerName"),
    ("scheduler", spec(schedulerName="hami-scheduler"), "spec.schedulerName"),
    ("scheduler", spec(schedulerName="gpushare-schd-extender"), "spec.schedulerName"),
    ("scheduler", spec(schedulerName="volcano"), "spec.schedulerName"),
    ("scheduler", spec(schedulerName="nvidia-user-scheduler"), "spec.schedulerName"),
    ("scheduler", spec(schedulerName="gpusharing-user-scheduler"), "spec.schedulerName"),
    # Devices that nobody asked the API server for.
    *(
        (
            "visible_devices",
            container(env=[{"name": "A", "value": "b"}, {"name": name, **value}]),
            "spec.containers[2].env[1]",
        )
        for name, value in (
            ("NVIDIA_VISIBLE_DEVICES", {"value": "all"}),
            ("NVIDIA_VISIBLE_DEVICES", {"value": "0"}),
            ("NVIDIA_VISIBLE_DEVICES", {"value": "$(OTHER)"}),
            ("NVIDIA_VISIBLE_DEVICES", {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
            ("AMD_VISIBLE_DEVICES", {"value": "all"}),
            ("HABANA_VISIBLE_DEVICES", {"value": "all"}),
            ("ASCEND_VISIBLE_DEVICES", {"value": "0-3"}),
            ("NVIDIA_MIG_CONFIG_DEVICES", {"value": "all"}),
            ("NVIDIA_IMEX_CHANNELS", {"value": "0"}),
            ("NVIDIA_VISIBLE_DEVICES", {"value": " void"}),
            ("NVIDIA_VISIBLE_DEVICES", {"value": "VOID"}),
            ("AWS_NEURON_VISIBLE_DEVICES", {"value": "ALL"}),
            ("DOCKER_RESOURCE_GPU", {"value": "all"}),
            ("DOCKER_RESOURCE_NVIDIA-GPU", {"value": "0"}),
        )
    ),
    *(
        ("host_device", node_volume(path), "spec.initContainers[1].volumeMounts[0]")
        for path in (
            "/dev/nvidia0",
            "/dev/dri",
            "/dev/kfd",
            "/dev",
            "/",
            "/srv/../dev//dri",
            "/dev//nvidiactl",
            "/var/lib/kubelet/device-plugins",
            "/var/lib/kubelet/pod-resources/kubelet.sock",
            "/run/containerd/containerd.sock",
            "/var/run/cdi",
            "/etc/cdi",
            "/dev/",
            "/dev/./dri",
            "///dev///dri",
            "/./etc/",
            "/proc/1/root/dev",
            "/run/k3s/containerd/containerd.sock",
            "/etc/kubernetes/manifests",
            *("/dev/char", "/dev/char/195:0", "/dev/nvhost-gpu", "/dev/nvmap", "/dev/nvgpu"),
            *("/dev/mem", "/dev/block", "/var/lib/containerd", "/var/lib/docker/overlay2"),
            *("/etc/containerd", "/etc/systemd/system", "/etc/cron.d", "/etc/ld.so.preload"),
            *("/usr", "/usr/bin", "/usr/local/bin", "/bin", "/lib/modules", "/root/.ssh", "/boot"),
            *("/opt/nvidia", "/opt/cni/bin", "/sys", "/sys/fs/cgroup", "/var/lib/kubelet/pods"),
            *("/var/lib/rancher/k3s", "/run/systemd", "/var/spool/cron/crontabs", "/opt"),
        )
    ),
    (
        "device_list",
        container("initContainers", volumeMounts=_MOUNTED_LIST),
        "spec.initContainers[1].volumeMounts[0]",
    ),
    (
        "privileged",
        container(securityContext={"privileged": True}),
        "spec.containers[2].securityContext.privileged",
    ),
    *(
        (
            "capability",
            container(securityContext={"capabilities": {"add": ["CHOWN", name]}}),
            "spec.containers[2].securityContext.capabilities.add[1]",
        )
        for name in ("SYS_ADMIN", "SYS_RAWIO", "SYS_MODULE", "SYS_PTRACE", "ALL", "CAP_SYS_ADMIN")
    ),
    *(("host_namespace", spec(**{name: True}), f"spec.{name}") for name in HOST),
    (
        "host_namespace",
        spec(hostNetwork=True, securityContext={"windowsOptions": {"hostProcess": True}}),
        "spec.securityContext.windowsOptions.hostProcess",
    ),
    *(
        ("sharing_note", {"metadata": {kind: {key: value}}}, f"metadata.{kind}.{key}")
        for kind, key, value in (
            ("annotations", "cdi.k8s.io/gpu", "nvidia.com/gpu=0"),
            ("annotations", "devices.nri.io/container.notebook", "- path: /dev/nvidia0"),
            ("annotations", "io.kubernetes.cri-o.Devices", "/dev/nvidia0"),
            ("annotations", "gpu-fraction", "0.5"),
            ("annotations", "gpu-memory", "4096"),
            ("annotations", "gpu-fraction-num-devices", "2"),
            ("labels", "runai-gpu-group", "x"),
            ("annotations", "nvidia.com/use-gputype", "A100"),
            ("annotations", "nvidia.com/vgpu-mode", "mig"),
            ("annotations", "hami.io/gpu-scheduler-policy", "spread"),
            ("annotations", "ALIYUN_COM_GPU_MEM_IDX", "0"),
            ("annotations", "scheduler.framework.gpushare.allocation", "{}"),
            ("annotations", "bitfusion-client/filter", "x"),
            ("annotations", "huawei.com/Ascend910", "Ascend910-0"),
            ("annotations", "NVIDIA.com/use-gpuuuid", "GPU-1"),
            ("annotations", "tensor-fusion.ai/tflops-limit", "10"),
            ("labels", "gpu.scheduling.koordinator.sh/device", "x"),
            ("annotations", "nvidia.cdi.k8s.io/container.notebook", "nvidia.com/gpu=all"),
            ("annotations", "cdi-devices.noderesource.dev/container.x", "- nvidia.com/gpu=0"),
            ("annotations", "devices.gke.io/container.notebook", "- path: /dev/nvidia0"),
            ("annotations", "io.katacontainers.config.hypervisor.cold_plug_vfio", "root-port"),
            ("annotations", "io.katacontainers.config.hypervisor.pcie_root_port", "2"),
            ("labels", "nos.nebuly.com/gpu-partitioning", "mig"),
            ("annotations", "elasticgpu.io/container-main", "0"),
            ("annotations", "volcano.sh/gpu-index", "0"),
            ("annotations", "scheduling.koordinator.sh/device-allocated", "{}"),
            ("annotations", "dev.gvisor.flag.nvproxy", "true"),
            ("annotations", "dev.gvisor.internal.nvproxy", "true"),
            ("annotations", "dev.gvisor.flag.nvproxy-allowed-driver-capabilities", "all"),
            ("annotations", "inject.istio.io/templates", "sidecar,site"),
            ("labels", "inject.istio.io/templates", "gpu"),
            ("annotations", "sidecar.istio.io/userVolume", '[{"hostPath": {"path": "/dev"}}]'),
            ("annotations", "sidecar.istio.io/userVolumeMount", "[]"),
            ("annotations", "proxy.istio.io/overrides", "{}"),
            ("annotations", "vault.hashicorp.com/agent-json-patch", "[]"),
            ("annotations", "vault.hashicorp.com/agent-init-json-patch", "[]"),
            *(
                ("annotations", f"{kind}.{domain}{rest}", "x")
                for kind in ("devices", "mounts", "cdi-devices")
                for domain in ("nri.io", "noderesource.dev")
                for rest in ("", "/pod", "/container.notebook")
            ),
            ("annotations", "devices.gke.io", "x"),
            ("annotations", "devices.crio.io/pod", "/dev/nvidia0"),
            ("annotations", "platform-runtime-path.crio.io", "/opt/x"),
            ("annotations", "dev.gvisor.spec.mount.x.source", "/dev"),
            ("annotations", "dev.gvisor.spec.rootfs.source", "/"),
            ("annotations", "io.katacontainers.config_path", "/opt/kata/nvidia-gpu.toml"),
            ("annotations", "io.katacontainers.config.hypervisor.path", "/usr/bin/x"),
            ("annotations", "io.katacontainers.config.hypervisor.kernel", "/boot/x"),
            ("annotations", "run.oci.hooks.stderr", "/dev/x"),
            ("annotations", "run.oci.handler", "krun"),
            ("annotations", "tencent.com/predicate-gpu-idx-0", "0"),
            ("annotations", "aliyun.com/gpu-count", "1"),
        )
    ),
    # What only a lease's pod bears.
    *(
        ("lease_label", marked(**marks), f"metadata.labels.{place}")
        for marks, place in (
            ({"gpulease__lease": "l1"}, "gpulease/lease"),
            ({"gpulease__attempt": "1"}, "gpulease/attempt"),
            (
                {
                    "app.kubernetes.io__name": "gpulease",
                    "app.kubernetes.io__component": "warm",
                },
                "app.kubernetes.io/name",
            ),
        )
    ),
]


def _mounted(**source: Any) -> Change:
    return spec(volumes=[{"name": "more", **source}])


def _secured(**fields: Any) -> Change:
    return container(securityContext=fields)


#: (the line that would allow it, a change that is on no list, the place the guard names).
UNLISTED: list[tuple[str, Change, str]] = [
    *(
        (f"resource {name}", resources(name), f"spec.containers[2].resources.limits.{name}")
        for name in ("rdma/hca", "example.com/card", "devices.kubevirt.io/kvm", "intel.com/qat")
    ),
    (
        "resource rdma/hca",
        resources("rdma/hca", "1", "initContainers"),
        "spec.initContainers[1].resources.limits.rdma/hca",
    ),
    (
        "resource hugepages-x.example/card",
        resources("hugepages-x.example/card"),
        "spec.containers[2].resources.limits.hugepages-x.example/card",
    ),
    ("hostPath /srv/other", _mounted(hostPath={"path": "/srv//./other"}), "spec.volumes[2]"),
    ("hostPath /tmp/x", _mounted(hostPath={"path": "/tmp/x"}), "spec.volumes[2]"),
    # Without a volume's own claim the pod says what of the node's plugin is mounted.
    (
        "csi csi-rclone",
        _mounted(csi={"driver": "csi-rclone", "volumeAttributes": {"remote": ":local"}}),
        "spec.volumes[2]",
    ),
    ("csi vendor.example", _mounted(csi={"driver": "vendor.example"}), "spec.volumes[2]"),
    ("flexVolume v/x", _mounted(flexVolume={"driver": "v/x"}), "spec.volumes[2]"),
    (
        "volume iscsi",
        _mounted(iscsi={"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.x:y", "lun": 0}),
        "spec.volumes[2]",
    ),
    ("volume gitRepo", _mounted(gitRepo={"repository": "x"}), "spec.volumes[2]"),
    (
        "volumeDevice /dev/xvda",
        container(volumeDevices=[{"name": "home", "devicePath": "/dev/xvda"}]),
        "spec.containers[2].volumeDevices[0].devicePath",
    ),
    (
        "capability NET_ADMIN",
        _secured(capabilities={"add": ["NET_ADMIN"]}),
        "spec.containers[2].securityContext.capabilities.add[0]",
    ),
    (
        "procMount Unmasked",
        {"spec": {"hostUsers": False, **_secured(procMount="Unmasked")["spec"]}},
        "spec.containers[2].securityContext.procMount",
    ),
    ("runtimeClassName gvisor\n", spec(runtimeClassName="gvisor\n"), "spec.runtimeClassName"),
    ("runtimeClassName kata", spec(runtimeClassName="kata"), "spec.runtimeClassName"),
    # A release of the chart may have any name, but for a GPU's.
    *(
        (f"{kind} {name}", spec(**{kind: name}), f"spec.{kind}")
        for kind, name in (
            ("schedulerName", "other"),
            ("schedulerName", "otheruser-scheduler"),
            ("priorityClassName", "high"),
            ("priorityClassName", "gpu-default-priority"),
            ("priorityClassName", "h100-default-priority"),
            ("schedulerName", "a100-user-scheduler"),
        )
    ),
    ("serviceAccountName other", spec(serviceAccountName="other"), "spec.serviceAccountName"),
    ("serviceAccountName other", spec(serviceAccount="other"), "spec.serviceAccount"),
    ("node pool=big", spec(nodeSelector={"pool": "big"}), "spec.nodeSelector.pool"),
    (
        "node kubernetes.io/hostname=n1",
        spec(nodeSelector={"kubernetes.io/hostname": "n1"}),
        "spec.nodeSelector.kubernetes.io/hostname",
    ),
    (
        "node metadata.name=n1",
        required_fields([expression("metadata.name", "In", "n1")]),
        f"{_NODES}.nodeSelectorTerms[1].matchFields[0]",
    ),
    (
        "node pool",
        required([expression("pool", "Exists")]),
        f"{_NODES}.nodeSelectorTerms[1].matchExpressions[0]",
    ),
    (
        "node pool=big",
        required([expression("kubernetes.io/os", "In", "linux"), expression("pool", "In", "big")]),
        f"{_NODES}.nodeSelectorTerms[1].matchExpressions[1]",
    ),
    (
        "node cores>8",
        required([expression("cores", "Gt", "8")]),
        f"{_NODES}.nodeSelectorTerms[1].matchExpressions[0]",
    ),
    (
        "node pool=big",
        preferred(expression("pool", "In", "big")),
        "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
        ".preference.matchExpressions[0]",
    ),
    (
        "toleration dedicated=big",
        spec(tolerations=[{"key": "dedicated", "value": "big", "operator": "Equal"}]),
        "spec.tolerations[1]",
    ),
    (
        "toleration node.kubernetes.io/other-pressure",
        spec(tolerations=[{"key": "node.kubernetes.io/other-pressure", "operator": "Exists"}]),
        "spec.tolerations[1]",
    ),
    (
        "toleration dedicated",
        spec(tolerations=[{"key": "dedicated", "operator": "Exists"}]),
        "spec.tolerations[1]",
    ),
    (
        "spread rack",
        spec(
            topologySpreadConstraints=[
                {
                    "maxSkew": 1,
                    "topologyKey": "rack",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {},
                }
            ]
        ),
        "spec.topologySpreadConstraints[0].topologyKey",
    ),
    (
        "pod app=dcgm-exporter",
        beside({"matchLabels": {"app": "dcgm-exporter"}}),
        f"{_PODS}.requiredDuringSchedulingIgnoredDuringExecution[0]",
    ),
    (
        "pod app=x,y",
        beside({"matchExpressions": [expression("app", "In", "x", "y")]}, weight=1),
        f"{_PODS}.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm",
    ),
    (
        "pod",
        beside({}),
        f"{_PODS}.requiredDuringSchedulingIgnoredDuringExecution[0]",
    ),
]


def blocker(**changes: Any) -> dict[str, Any]:
    """The chart's init container that closes the metadata address, as the chart renders it."""
    return {
        "name": "block-cloud-metadata",
        "image": "quay.io/jupyterhub/k8s-network-tools:4.4.0",
        "command": [
            *("iptables", "--append", "OUTPUT", "--protocol", "tcp"),
            *("--destination", "169.254.169.254", "--destination-port", "80", "--jump", "DROP"),
        ],
        "securityContext": {
            "privileged": True,
            "runAsUser": 0,
            "capabilities": {"add": ["NET_ADMIN"]},
        },
        "resources": {},
        **changes,
    }
