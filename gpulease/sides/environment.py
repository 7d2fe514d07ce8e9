"""What a lease's processes may know of the machine they run on.

Environment variables pass by an allow-list, a mark identifies the processes, and a list names the
devices that a companion sees.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping

from gpulease.protocol.names import ENV_BUS, ENV_LEASE
from gpulease.protocol.variables import is_of_one_process, is_secret

#: Which lease's companion a process belongs to (``companion_mark``): how one companion's stray
#: children are told from another's.
ENV_COMPANION = "GPULEASE_COMPANION"
#: The mark of a process that was started ahead is rewritten in place, so it needs room.
MARK_ROOM = 72

_NAMES = frozenset((
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP",
    "TMP", "TERM", "PWD", "HOSTNAME", "PYTHONPATH", "PYTHONHASHSEED", "PYTHONHOME",
    "PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX", "PYTHONNOUSERSITE", "PYTHONUSERBASE", "PYTHONWARNINGS",
    "VIRTUAL_ENV", "LD_LIBRARY_PATH", "IPYTHONDIR", "MPLBACKEND", "MPLCONFIGDIR",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "HTTP_PROXY",
    "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "JUPYTER_DATA_DIR",
    "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_PATH", "JUPYTER_PREFER_ENV_PATH",
    "CUDA_HOME", "CUDA_PATH", "CUDA_CACHE_PATH", "CUDA_CACHE_MAXSIZE", "CUDA_LAUNCH_BLOCKING",
    "CUBLAS_WORKSPACE_CONFIG", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS",
    "NUMBA_NUM_THREADS", "NUMBA_CACHE_DIR", "TORCH_HOME", "TORCH_EXTENSIONS_DIR",
    "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT",
    "HF_HUB_OFFLINE", "HF_DATASETS_CACHE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_CACHE",
    "TRANSFORMERS_OFFLINE", "SENTENCE_TRANSFORMERS_HOME", "TOKENIZERS_PARALLELISM",
    "VLLM_CACHE_ROOT", "WANDB_MODE", "WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_PROJECT",
    "WANDB_ENTITY", "WANDB_DISABLED", "KERAS_HOME", "KERAS_BACKEND", "TFHUB_CACHE_DIR",
    "TFDS_DATA_DIR", "TF_CPP_MIN_LOG_LEVEL", "TF_FORCE_GPU_ALLOW_GROWTH", "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION", "JAX_PLATFORMS",
    "JAX_ENABLE_X64", "JAX_COMPILATION_CACHE_DIR", "NLTK_DATA", "SCIKIT_LEARN_DATA",
))  # fmt: skip
_PREFIXES = ("LC_", "CONDA_", "XDG_", "OMP_", "MKL_", "OPENBLAS_", "NCCL_", "PYTORCH_", "PYSPARK_")
#: Never taken over from anybody, however it was allowed: devices belong to the lease, and
#: credentials to the process that was given them.
_DEVICES = frozenset(("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"))
#: What home says of its own machine: in a container of the lease's own it would be wrong.
_HOMES_OWN = frozenset((
    "HOME", "TMPDIR", "TEMP", "TMP", "PWD", "HOSTNAME", "PATH", "PYTHONPATH", "PYTHONHOME",
    "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_HOME", "CUDA_PATH", "JUPYTER_RUNTIME_DIR",
    "XDG_RUNTIME_DIR", "IPYTHONDIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy",
    "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
))  # fmt: skip
_LEASE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def is_lease_id(text: str) -> bool:
    """Tell whether ``text`` may stand in a mark and in a file name."""
    return _LEASE_ID.fullmatch(text) is not None


def forbidden(name: str) -> bool:
    """Tell whether a variable must never reach a companion from outside."""
    return name in _DEVICES or _is_credential(name)


def _is_credential(name: str) -> bool:
    return is_of_one_process(name) or is_secret(name)


def allowed_environment(source: Mapping[str, str]) -> dict[str, str]:
    """Return the part of a server's or kernel's environment that a supervisor may have."""
    return {
        name: value
        for name, value in source.items()
        if (name in _NAMES or name.startswith(_PREFIXES)) and not forbidden(name)
    }


def marked_environment(
    source: Mapping[str, str], mark: str, *, in_container: bool = False
) -> dict[str, str]:
    """Return the allowed environment with the lease's mark first, padded for rewriting."""
    allowed = container_environment(source) if in_container else allowed_environment(source)
    return {ENV_LEASE: mark.ljust(MARK_ROOM, " "), **allowed}


def container_environment(source: Mapping[str, str]) -> dict[str, str]:
    """Return what the processes of a lease may have of its own container's environment.

    There everything but credentials counts: the image, the device plugin and the container runtime
    say in it which devices there are and how they are shared.
    """
    return {name: value for name, value in source.items() if not _is_credential(name)}


def launched_environment(own: Mapping[str, str], told: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that was launched from another node of the same lease.

    ``told`` is that of the launching cell: it adds what this container does not say itself.
    """
    added = {
        name: value
        for name, value in told.items()
        if name not in _HOMES_OWN and name not in _DEVICES and not is_of_one_process(name)
    }
    return added | container_environment(own)


def companion_mark(lease_mark: str, kernel_id: str) -> str:
    """Return the mark of one companion.

    It names the lease too: marks are looked for machine-wide, and a kernel's id is only as unique
    as its connection file's name.
    """
    return f"{lease_mark}/{kernel_id}"


def companion_environment(
    base: Mapping[str, str],
    home: Mapping[str, str],
    mark: str,
    kernel_id: str,
    devices: str | None,
    *,
    in_container: bool = False,
) -> dict[str, str]:
    """Return the environment of one companion.

    ``home`` was allow-listed by the home kernel and is checked again here; in a container of the
    lease's own it adds only what the container does not say.  ``devices`` is what the lease grants
    (empty: none); None leaves what this machine shows to everybody.
    """
    result = container_environment(base) if in_container else allowed_environment(base)
    known = {*result, *_HOMES_OWN} if in_container else set()
    result.update(
        {name: value for name, value in home.items() if not forbidden(name) and name not in known}
    )
    result[ENV_LEASE] = mark
    result[ENV_COMPANION] = companion_mark(mark, kernel_id)
    result.pop(ENV_BUS, None)
    if devices is not None:
        result["CUDA_VISIBLE_DEVICES"] = devices
        if devices[:1].isdigit():  # numbers mean something in this order alone
            result["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    elif "CUDA_VISIBLE_DEVICES" in base:
        result["CUDA_VISIBLE_DEVICES"] = base["CUDA_VISIBLE_DEVICES"]
    return result


def take_mark(mark: str) -> None:
    """Make this process and the children it starts from now on carry ``mark``.

    ``/proc/PID/environ`` shows the memory that the kernel laid out at exec, which ``os.environ``
    does not touch; so the bytes are overwritten where they lie.  That is why a process that is
    started ahead gets a mark with room (``marked_environment``).
    """
    encoded = mark.encode()
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    address = getenv(ENV_LEASE.encode())
    if address:
        room = len(ctypes.string_at(address))
        if len(encoded) <= room:
            ctypes.memmove(address, encoded.ljust(room, b"\0"), room)
    os.environ[ENV_LEASE] = mark
