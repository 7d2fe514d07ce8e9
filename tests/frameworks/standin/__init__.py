"""A device for tests where there is no GPU: built with the local compiler, kept beside the clone.

``start()`` registers it in this process as torch's device ``standin``; a process that did not call
it refuses what is on it, as one without CUDA does.
"""

import ctypes
import hashlib
import os
import subprocess
import sys
import types
from pathlib import Path

NAME = "standin"
#: The device that tests use: this one, or a real GPU's (make test-gpu).
DEVICE = os.environ.get("GPULEASE_TEST_DEVICE", NAME)
#: What makes it be there, in a companion.
START = "import torch"
if DEVICE == NAME:
    START += "; from tests.frameworks import standin; standin.start(); del standin"
_SOURCE = Path(__file__).with_name("device.cpp")


def library():
    """Return the built library's path; builds it once for each torch and source (half a minute)."""
    import torch

    key = torch.__version__ + sys.implementation.cache_tag + _SOURCE.read_text()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpulease"
    built = cache / f"standin-{hashlib.sha256(key.encode()).hexdigest()[:12]}.so"
    if not built.exists():
        cache.mkdir(parents=True, exist_ok=True)
        root = Path(torch.__file__).parent
        partial = built.with_suffix(f".{os.getpid()}")
        subprocess.run(
            [
                *("g++", "-std=c++20", "-O1", "-fPIC", "-shared", "-w"),
                f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
                *(f"-isystem{path}" for path in (root / "include",)),
                *(str(_SOURCE), "-o", str(partial)),
                *(f"-L{root / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch"),
            ],
            check=True,
        )
        partial.rename(built)
    return built


def start():
    """Register the device in this process, once; return its module, ``torch.standin``."""
    import torch

    if hasattr(torch, NAME):
        return getattr(torch, NAME)
    path = library()
    torch.ops.load_library(str(path))
    native = ctypes.CDLL(str(path))
    for name in ("standin_in_use", "standin_peak"):
        getattr(native, name).restype = ctypes.c_size_t
    native.standin_initialized.restype = ctypes.c_bool
    native.standin_limit.argtypes = [ctypes.c_size_t]
    torch.utils.rename_privateuse1_backend(NAME)
    native.standin_register()
    torch._register_device_module(NAME, _module(torch, native))
    torch.utils.generate_methods_for_privateuse1_backend(unsupported_dtype=[])
    return getattr(torch, NAME)


def _module(torch, native):
    """Make the module that torch and gpulease ask about the device, as they ask ``torch.cuda``."""
    module = types.ModuleType("torch." + NAME)
    module.generator = torch.Generator()
    module.is_available = lambda: True
    module.is_initialized = native.standin_initialized
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = module.generator.manual_seed
    module.get_rng_state_all = lambda: [module.generator.get_state()]
    module.set_rng_state_all = lambda states: module.generator.set_state(states[0])
    module.memory_allocated = lambda *_: native.standin_in_use()
    module.max_memory_allocated = lambda *_: native.standin_peak()
    module.reset_peak_memory_stats = lambda *_: native.standin_reset_peak()
    module.limit = native.standin_limit
    return module
