"""Names by which a GPU, or the way to one, is known on a cluster.

The patterns cover resource names, node labels and taints, variables, annotations, schedulers,
runtime classes and host paths; ``gpulease.hub.guard`` applies them.  They are RE2 (no look-around),
because the admission policies use the same patterns.
"""

from __future__ import annotations

import posixpath
import re
from typing import Final

#: Domains whose every resource, label or taint concerns accelerators.
_DOMAINS: Final = "|".join(
    re.escape(domain)
    for domain in (
        "nvidia.com",
        "amd.com",
        "beta.amd.com",
        "gpu.intel.com",
        "habana.ai",
        "huawei.com",
        "cambricon.com",
        "mthreads.com",
        "metax-tech.com",
        "iluvatar.ai",
        "enflame.com",
        "hygon.com",
        "kunlunxin.com",
        "birentech.com",
        "nvshare.com",
        "nos.nebuly.com",
        "elasticgpu.io",
        "bitfusion.io",
        "run.ai",
        "4pd.io",
        "furiosa.ai",
        "rebellions.ai",
        "tenstorrent.com",
        "graphcore.ai",
        "iluvatar.com",
        "tensor-fusion.ai",
        "microsoft.com/directx",
        # A claim in the shape of a resource: KEP-5004's implicit name of a device class.
        "deviceclass.resource.kubernetes.io",
    )
)
#: Words that mean an accelerator wherever they stand in a name: vgpu-number, gke-accelerator, ...
_WORDS: Final = (
    r"[a-z]*gpu[a-z]*|v?cuda|rocm|mig|[tnx]pus?|ppu|dcu|mlu|gcu|neuron[a-z]*|gaudi"
    r"|ascend[0-9a-z]*|qaic|accelerators?"
)
_WORD: Final = rf"(^|[^a-z])({_WORDS})([^a-z]|$)"

#: The name of a resource that is a device, whoever makes it.
#: (device plugins that pass on device files name them so: ``smarter-devices/nvidia0``).
RESOURCE: Final = rf"(?i)^({_DOMAINS})([./]|$)|{_WORD}|nvidia|/(dri|kfd)([^a-z]|$)"
#: The key of a node label or taint that marks nodes with GPUs (PCI ids: NVIDIA and AMD displays).
NODE_KEY: Final = (
    rf"(?i)^({_DOMAINS})([./]|$)|^gpulease/|{_WORD}"
    r"|^feature\.node\.kubernetes\.io/pci-.*(10de|1002)"
)
#: Names of cards as they stand in labels and in the names of nodes: ``pool: l4``, ``dgx-h100-1``.
_CARDS: Final = (
    r"rtx|quadro|[avh]100|[ah]800|[bh]200|b300|h20|g[bh][23]00|l40s?|[lt]4|a10g?|a16|a2|a30|a40"
    r"|k80|p100|p40|mi[123][0-9]{2}[a-z]?"
)
#: The value of one that does: ``pool: gpu-a100``, ``instance-type: p4d.24xlarge``.
NODE_VALUE: Final = (
    rf"(?i){_WORD}|nvidia|tesla|geforce|radeon|(^|[^a-z0-9])({_CARDS})([^a-z0-9]|$)"
    r"|^(p[2-9]|gr?[3-9])[a-z]*(-[a-z0-9]+)?\.[0-9a-z-]+$|^(p[2-9][a-z]*|gr?[3-9][a-z]*)$"
    r"|^(trn|inf|dl)[0-9][a-z]*(\.|$)|^standard_n[cdvg]|^(a[2-4]x?|g[24])-"
)
#: A variable by which a container runtime gives devices to a container that asked for none.
VARIABLE: Final = (
    r"^[A-Z0-9_]+_VISIBLE_DEVICES$|^NVIDIA_MIG_(CONFIG|MONITOR)_DEVICES$|^NVIDIA_IMEX_CHANNELS$"
    # Docker Swarm's, which the NVIDIA runtime reads as NVIDIA_VISIBLE_DEVICES if so configured.
    r"|^DOCKER_RESOURCE_"
)
#: Variables that match but only choose among devices that a process can already see.
CHOOSING: Final = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "ASCEND_RT_VISIBLE_DEVICES",
    }
)
#: What other vendors' runtimes read; empty, for not all of them know ``void``.
OF_OTHER_VENDORS: Final = (
    "AMD_VISIBLE_DEVICES",
    "ASCEND_VISIBLE_DEVICES",
    "AWS_NEURON_VISIBLE_DEVICES",
    "HABANA_VISIBLE_DEVICES",
)
#: Annotations and labels by which an injector, a sharing layer or a runtime gives devices.
NOTE: Final = (
    # NRI plugins read their keys bare, for the pod, and for one container.
    rf"(?i)^({_DOMAINS})([./]|$)|(^|\.)((cdi\.k8s|nri)\.io|noderesource\.dev)(/|$)"
    r"|^((cdi-)?devices|mounts)\.|^io\.kubernetes\.cri-o\.(devices|platformruntimepath)"
    r"|^platform-runtime-path\.crio\.io"
    r"|^gpu-(fraction|memory|compute|limit|request)|^runai-gpu"
    r"|^hami\.io/|^scheduler\.framework\.gpushare|^aliyun_com_gpu"
    r"|^([a-z0-9.-]+\.)?(aliyun|alibabacloud|tencent|tencentcloud|baidu|volcengine)\.com/.*(gpu|cuda)"
    r"|^volcano\.sh/(v?gpu|vnpu|numa)|^bitfusion|koordinator\.sh/(gpu|device)"
    r"|^resource\.kubernetes\.io/admin-access$"
    # What changes a runtime's own files, programs, mounts or flags on the node.
    r"|^dev\.gvisor\.|^run\.oci\.(hooks|handler|seccomp|pidfd)"
    r"|^io\.katacontainers\..*(vfio|pcie|iommu|path|daemon|kernel|image|initrd|firmware|file_)"
    # Injectors that write any text they get into the pod.
    r"|^inject\.istio\.io/templates$|^proxy\.istio\.io/overrides$"
    r"|^sidecar\.istio\.io/userVolume|^vault\.hashicorp\.com/agent-(init-)?json-patch$"
)
#: Such notes that ask for nothing: HAMi is told to keep away, istio brings its own sidecar.
HARMLESS_NOTES: Final = ("hami.io/webhook=ignore", "inject.istio.io/templates=sidecar")
#: A runtime that puts devices into containers, and a scheduler that hands them out.
RUNTIME: Final = rf"(?i)nvidia|amd|habana|ascend|{_WORD}"
SCHEDULER: Final = (
    rf"(?i)nvidia|{_WORD}|(^|[^a-z])(kai|runai|run-ai|hami|4pd|nvshare|volcano)([^a-z]|$)"
)
#: A path of the node at which devices, the lists and sockets that give them out, or the node
#: itself is found: who writes its programs or its configuration has its devices.
HOST_PATH: Final = (
    r"^/(dev|etc|proc|sys|var|var/lib|var/lib/kubelet|var/run|run|usr|usr/local|usr/lib|opt|root"
    r"|boot|bin|sbin|lib|lib64)?$"
    r"|^/dev/(nvidia|nvhost|nvmap|nvgpu|dri|kfd|accel|davinci|hisi|habanalabs|hl[0-9]|mtgpu|dxg"
    r"|neuron|tpu|cambricon|vfio|char|block|mem|kmem|port)|^/proc/"
    r"|^/sys/(fs/cgroup|kernel|bus|devices|class|module)"
    r"|^/(var/)?run/(nvidia|cdi|containerd|crio|docker|cri-dockerd|k3s|k0s|podman|systemd|dbus)"
    r"|^/var/lib/(containerd|docker|containers|cni|rancher|k0s|kubelet/(device-plugins"
    r"|plugins_registry|pod-resources|plugins|pods|pki|config))"
    r"|^/var/snap/microk8s|^/var/spool/cron|^/(opt/nvidia|home/kubernetes)(/|$)"
    r"|^/etc/(cdi|kubernetes|containerd|crio|docker|nvidia|systemd|cron|rc|init|profile|ld\.so"
    r"|modprobe|modules|udev|pam|passwd|shadow|sudoers|ssh|rancher|cni)"
    r"|^/(usr/(s?bin|lib|lib64|local|libexec)|bin|sbin|lib|lib64|boot|root|opt/cni)(/|$)"
    r"|^/tmp/nvidia-mps"
)
#: Where a mount in a container is itself the list of devices that the NVIDIA runtime reads.
DEVICE_LIST: Final = r"^/(var/)?run/nvidia-container-devices(/|$)"
#: A capability with which a container comes at its node's devices.
CAPABILITY: Final = (
    r"(?i)^(CAP_)?(ALL|SYS_ADMIN|SYS_RAWIO|SYS_MODULE|SYS_PTRACE|DAC_READ_SEARCH|BPF|PERFMON)$"
)

#: Values with which such a variable gives nothing.
VOID: Final = frozenset({"", "void", "none"})
#: With which a label says that there is none.
OFF: Final = ("false", "0", "no", "none", "off", "disabled")
#: The labels that say so.  These keys alone: GPU feature discovery sets others, such as
#: ``nvidia.com/mig.capable=false``, on nodes with GPUs only.
NO_GPU: Final = (
    r"^(gpu|has-gpu|accelerator|nvidia\.com/gpu(\.present)?|amd\.com/gpu)"
    rf"=(?i:{'|'.join(OFF)})$"
)
_ZERO: Final = re.compile(r"[+-]?0*(\.0*)?([eE][+-]?\d+|[a-zA-Z]*)")


def is_resource(name: str) -> bool:
    """Whether a resource of this name is a device."""
    return re.search(RESOURCE, name) is not None


def is_zero(quantity: object) -> bool:
    """Whether a resource quantity asks for nothing."""
    return _ZERO.fullmatch(str(quantity)) is not None


def is_gpu_node(key: str, value: str = "") -> bool:
    """Whether a node label or taint marks nodes with GPUs; ``gpu: "false"`` does not."""
    if says_none(key, value):
        return False
    return any(re.search(*each) for each in ((NODE_KEY, key), (NODE_VALUE, value)))


def says_none(key: str, value: str) -> bool:
    """Whether a node's label says that there is no GPU: ``gpu: "false"``."""
    return re.fullmatch(NO_GPU, f"{key}={value}") is not None


def gives_devices(variable: str, value: object) -> bool:
    """Whether an environment variable of this value makes a runtime give devices.

    ``value`` is not a string where it comes from elsewhere (a Secret, a field): nobody knows.
    """
    if re.search(VARIABLE, variable) is None or variable in CHOOSING:
        return False
    return not (isinstance(value, str) and value in VOID)


def is_gpu_runtime(name: str) -> bool:
    """Whether a runtime class of this name puts devices into containers."""
    return re.search(RUNTIME, name) is not None


def is_gpu_scheduler(name: str) -> bool:
    """Whether a scheduler of this name hands out devices."""
    return re.search(SCHEDULER, name) is not None


def is_note(key: str, value: str) -> bool:
    """Whether an annotation or label asks for devices."""
    if f"{key}={value}" in HARMLESS_NOTES:
        return False
    return re.search(NOTE, key) is not None


def opens_the_node(capability: str) -> bool:
    """Whether a container with this capability comes at its node's devices."""
    return re.search(CAPABILITY, capability) is not None


def is_host_device(path: str) -> bool:
    """Whether a path of the node leads to devices."""
    return re.search(HOST_PATH, plain_path(path)) is not None


def is_device_list(path: str) -> bool:
    """Whether a mount at this path of a container is read as a list of devices."""
    return re.search(DEVICE_LIST, plain_path(path)) is not None


def plain_path(path: str) -> str:
    """Return the path without ``//``, ``.`` and ``..``, as the kubelet would walk it."""
    return posixpath.normpath("/" + path.lstrip("/"))
