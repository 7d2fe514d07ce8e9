"""Settings inside modules that cells change: a plain kernel's next cell would see them.

Owns the table of the known ones, and which of their values changed since the module was imported
here.  Only those travel: each side keeps what it began with, and what belongs to one process only
(matplotlib's backend, say) is not in the table.
"""

from __future__ import annotations

import contextlib
import decimal
import importlib
import locale
import logging
import pickle
import re
import sys
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from .on_import import when_imported

Values = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """``module`` has it; ``get`` returns its values by key, ``put`` sets some of them.

    ``of_thread``: each thread has its own; the notebook's is the main one's.  ``first`` are the
    values that a fresh module has, where they are known.
    """

    module: str
    get: Callable[[], Values]
    put: Callable[[Values], None]
    of_thread: bool = False
    first: Mapping[str, Any] | None = None
    #: The value of a key that ``get`` no longer has.
    gone: Any = None


class Settings:
    """Changed settings of one process."""

    def __init__(self) -> None:
        self._first: dict[str, dict[str, bytes]] = {}
        self._told: dict[str, dict[str, bytes]] = {}
        self._waiting: dict[str, dict[str, bytes]] = {}
        #: What was looked at last, all keys in one: it is asked for at every cell.
        self._last: dict[str, bytes] = {}
        for setting in SETTINGS.values():
            if setting.module in sys.modules:
                self._begin(setting.module)
            elif setting.first is None:
                when_imported(setting.module, partial(self._begin, setting.module))

    def _begin(self, module: str) -> None:
        """Remember what a module has before any code of the notebook could change it."""
        for name, setting in SETTINGS.items():
            if setting.module == module and setting.first is None:
                with contextlib.suppress(Exception):  # another version may have it elsewhere
                    self._first[name] = _pickled(setting.get())
        if self._waiting:
            self.settle()

    def capture(self) -> dict[str, dict[str, bytes]]:
        """Return what changed, by setting and key; pickled."""
        for name, setting in SETTINGS.items():
            if setting.first is not None:
                self._first.setdefault(name, _pickled(setting.first))
            first = self._first.get(name)
            ready = first is not None and setting.module in sys.modules
            if ready and name not in self._waiting and _may(setting):
                self._look(name, setting, first or {})
        return {name: dict(sorted(told.items())) for name, told in sorted(self._told.items())}

    def _look(self, name: str, setting: Setting, first: dict[str, bytes]) -> None:
        try:
            values = setting.get()
        except Exception:  # noqa: BLE001 - whatever a library makes of being asked: nothing is told
            return
        all_of_it = b""
        with contextlib.suppress(Exception):  # then it is looked at key by key each time
            all_of_it = pickle.dumps(values, 5)
        if all_of_it and all_of_it == self._last.get(name):
            return
        self._last[name] = all_of_it
        now = _pickled(values)
        told = self._told.get(name, {})
        now = dict.fromkeys(told, pickle.dumps(setting.gone, 5)) | now
        changed = {key: data for key, data in now.items() if data != first.get(key) or key in told}
        if changed:
            self._told[name] = told | changed

    def apply(self, changed: Mapping[str, Mapping[str, bytes]]) -> None:
        """Take over what the other side told; what cannot be set yet waits."""
        for name, values in changed.items():
            known = self._told.setdefault(name, {})
            fresh = {key: data for key, data in values.items() if known.get(key) != data}
            known.update(values)
            if fresh and name in SETTINGS:
                self._waiting.setdefault(name, {}).update(fresh)
        self.settle()

    def settle(self) -> None:
        """Set what waits for its module or for the main thread."""
        for name in list(self._waiting):
            setting = SETTINGS[name]
            if setting.module not in sys.modules or not _may(setting):
                continue
            self._last.pop(name, None)
            for key, data in self._waiting.pop(name).items():
                # What another version of the library does not know stays as it is there.
                with contextlib.suppress(Exception):
                    setting.put({key: pickle.loads(data)})


def _may(setting: Setting) -> bool:
    return not setting.of_thread or threading.current_thread() is threading.main_thread()


def _pickled(values: Mapping[str, Any]) -> dict[str, bytes]:
    out = {}
    for key, value in values.items():
        with contextlib.suppress(Exception):  # a formatter that is a lambda stays where it is
            out[key] = pickle.dumps(value, 5)
    return out


# ---- the table

_OWN_RC = ("backend", "backend_fallback", "interactive", "toolbar", "webagg.", "savefig.directory")
_CONTEXT = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
_CUDNN = ("benchmark", "deterministic")
#: Settings of jax about where it runs; the default device stays on its side.
_OF_THE_MACHINE = re.compile(
    r"platform|device|backend|pjrt|cache_dir|cross_host|transport|topology|num_cpu|num_gpu|mock"
)


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _rc() -> Values:
    every = dict(dict.items(_module("matplotlib").rcParams))
    return {key: value for key, value in every.items() if not key.startswith(_OWN_RC)}


def _put_rc(values: Values) -> None:
    _module("matplotlib").rcParams.update(values)


def _flat(part: Mapping[str, Any], prefix: str = "") -> Values:
    out: Values = {}
    for key, value in part.items():
        if isinstance(value, dict):
            out |= _flat(value, f"{prefix}{key}.")
        else:
            out[prefix + key] = value
    return out


def _pandas() -> Values:
    return _flat(_module("pandas._config.config")._global_config)  # noqa: SLF001 - all at once


def _put_pandas(values: Values) -> None:
    for key, value in values.items():
        _module("pandas").set_option(key, value)


def _decimal() -> Values:
    context = decimal.getcontext()
    plain = {name: getattr(context, name) for name in _CONTEXT}
    return plain | {"traps": {kind.__name__: bool(on) for kind, on in context.traps.items()}}


def _put_decimal(values: Values) -> None:
    context = decimal.getcontext()
    for name, value in values.items():
        if name == "traps":
            context.traps.update({getattr(decimal, kind): on for kind, on in value.items()})
        else:
            setattr(context, name, value)


def _levels() -> Values:
    loggers = logging.Logger.manager.loggerDict
    found = {
        name: logger.level
        for name, logger in list(loggers.items())
        if isinstance(logger, logging.Logger) and logger.level and not name.startswith("gpulease")
    }
    return found | {"": logging.getLogger().level}


def _put_levels(values: Values) -> None:
    for name, level in values.items():
        logging.getLogger(name or None).setLevel(level)


def _put_filters(values: Values) -> None:
    warnings.filters[:] = values["filters"]  # type: ignore[index]
    getattr(warnings, "_filters_mutated", lambda: None)()


def _put_locale(values: Values) -> None:
    locale.setlocale(locale.LC_ALL, values["all"])


def _torch() -> Values:
    torch = sys.modules["torch"]
    if not hasattr(torch, "get_default_dtype"):  # half imported
        return {}
    cudnn = {f"cudnn.{name}": getattr(torch.backends.cudnn, name) for name in _CUDNN}
    return cudnn | {
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _put_torch(values: Values) -> None:
    torch = sys.modules["torch"]
    for key, value in values.items():
        if key == "dtype":
            torch.set_default_dtype(getattr(torch, value))
        elif key == "deterministic":
            torch.use_deterministic_algorithms(value)
        else:
            setattr(torch.backends.cudnn, key.removeprefix("cudnn."), value)


def _put_torch_modes(values: Values) -> None:
    torch = sys.modules["torch"]
    modes = _torch_modes() | values
    torch.set_grad_enabled(modes["grad"])
    torch.autograd.set_detect_anomaly(modes["anomaly"], modes["check_nan"])


def _torch_modes() -> Values:
    torch = sys.modules["torch"]
    return {
        "grad": torch.is_grad_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "check_nan": torch.is_anomaly_check_nan_enabled(),
    }


def _torch_print() -> Values:
    options: Values = vars(_module("torch._tensor_str").PRINT_OPTS)
    return options


def _put_torch_precision(values: Values) -> None:
    sys.modules["torch"].set_float32_matmul_precision(values["matmul"])


def _jax() -> Values:
    every = dict(_module("jax").config.values)
    return {key: value for key, value in every.items() if not _OF_THE_MACHINE.search(key)}


def _put_jax(values: Values) -> None:
    for key, value in values.items():
        _module("jax").config.update(key, value)


#: What Keras keeps of a seed that was set, and where it draws without one.
_KERAS_SEED, _KERAS_DRAWS = "global_random_seed", "global_seed_generator"


def _keras() -> Values:
    keras, state = _module("keras"), _module("keras.src.backend.common.global_state")
    policy = state.get_global_attribute("dtype_policy")
    draws = state.get_global_attribute(_KERAS_DRAWS)
    names = state.get_global_attribute("object_name_uids") or {}
    return {f"name {name}": count for name, count in names.items()} | {
        "floatx": keras.config.floatx(),
        "policy": policy and policy.name,
        "seed": state.get_global_attribute(_KERAS_SEED),
        "draws": draws and keras.ops.convert_to_numpy(draws.state).tolist(),
    }


def _put_keras(values: Values) -> None:
    keras, state = _module("keras"), _module("keras.src.backend.common.global_state")
    names = state.get_global_attribute("object_name_uids", defaultdict(int), set_to_default=True)
    for key, value in values.items():
        if key.startswith("name "):
            names[key[5:]] = value
            if not value:  # after `clear_session`
                del names[key[5:]]
        elif key == "floatx":
            keras.config.set_floatx(value)
        elif key == "seed":
            state.set_global_attribute(_KERAS_SEED, value)
        elif key == "draws":
            draws = value and keras.random.SeedGenerator(0, name="global")
            if draws:
                draws.state.assign(value)
            state.set_global_attribute(_KERAS_DRAWS, draws)
        elif value is not None:
            keras.config.set_dtype_policy(value)


SETTINGS: dict[str, Setting] = {
    "warnings": Setting("warnings", lambda: {"filters": list(warnings.filters)}, _put_filters),
    "logging": Setting("logging", _levels, _put_levels, gone=logging.NOTSET),
    "locale": Setting(
        "locale",
        lambda: {"all": locale.setlocale(locale.LC_ALL)},
        _put_locale,
    ),
    "decimal": Setting("decimal", _decimal, _put_decimal, of_thread=True),
    "numpy.print": Setting(
        "numpy",
        lambda: dict(_module("numpy").get_printoptions()),
        lambda values: _module("numpy").set_printoptions(**values),
        of_thread=True,
    ),
    "numpy.errors": Setting(
        "numpy",
        lambda: dict(_module("numpy").geterr()),
        lambda values: _module("numpy").seterr(**values) and None,
        of_thread=True,
    ),
    "matplotlib": Setting("matplotlib", _rc, _put_rc),
    "pandas": Setting("pandas", _pandas, _put_pandas),
    "jax": Setting("jax", _jax, _put_jax),
    "torch": Setting(
        "torch",
        _torch,
        _put_torch,
        first={
            "dtype": "float32", "deterministic": False,
            "cudnn.benchmark": False, "cudnn.deterministic": False,
        },
    ),
    "keras": Setting(
        "keras",
        _keras,
        _put_keras,
        of_thread=True,
        first={"floatx": "float32", "policy": None, "seed": None, "draws": None},
        gone=0,
    ),
    "torch.modes": Setting(
        "torch",
        _torch_modes,
        _put_torch_modes,
        of_thread=True,
        first={"grad": True, "anomaly": False, "check_nan": True},
    ),
    "torch.print": Setting(
        "torch",
        _torch_print,
        lambda values: _torch_print().update(values),
        first={
            "precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None,
        },
    ),
    "torch.precision": Setting(
        "torch",
        lambda: {"matmul": sys.modules["torch"].get_float32_matmul_precision()},
        _put_torch_precision,
        first={"matmul": "highest"},
    ),
}  # fmt: skip
