"""The table of settings inside modules that travel: how each is read and set.

What belongs to one process only (matplotlib's backend, say) is not in it.
"""

from __future__ import annotations

import csv
import decimal
import locale
import logging
import re
import socket
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpulease.sides.hushed import import_quietly
from gpulease.sides.process_objects import see_context
from gpulease.sides.state import log_handlers, patches, registered, shell_switches

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


_OWN_RC = ("backend", "backend_fallback", "interactive", "toolbar", "webagg.", "savefig.directory")
#: What turns figures into pictures under cells, in the kernels that show them there.
_INLINE = "matplotlib_inline.backend_inline"
_CONTEXT = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
_CUDNN = ("benchmark", "deterministic")
#: Settings of jax about where it runs; the default device stays on its side.
_OF_THE_MACHINE = re.compile(
    r"platform|device|backend|pjrt|cache_dir|cross_host|transport|topology|num_cpu|num_gpu|mock"
)


def _rc() -> Values:
    every = dict(dict.items(import_quietly("matplotlib").rcParams))
    return {key: value for key, value in every.items() if not key.startswith(_OWN_RC)}


def _put_rc(values: Values) -> None:
    import_quietly("matplotlib").rcParams.update(values)


def _put_inline(values: Values) -> None:
    """Load what shows figures under cells: where a first figure was made, IPython knows them."""
    if values["shown"]:
        import_quietly(_INLINE)


def _flat(part: Mapping[str, Any], prefix: str = "") -> Values:
    out: Values = {}
    for key, value in part.items():
        if isinstance(value, dict):
            out |= _flat(value, f"{prefix}{key}.")
        else:
            out[prefix + key] = value
    return out


def _pandas() -> Values:
    return _flat(import_quietly("pandas._config.config")._global_config)  # noqa: SLF001 - all at once


def _put_pandas(values: Values) -> None:
    for key, value in values.items():
        import_quietly("pandas").set_option(key, value)


def _decimal() -> Values:
    see_context()
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
    options: Values = vars(import_quietly("torch._tensor_str").PRINT_OPTS)
    return options


def _put_torch_precision(values: Values) -> None:
    sys.modules["torch"].set_float32_matmul_precision(values["matmul"])


def _torch_threads() -> Values:
    return {"threads": sys.modules["torch"].get_num_threads()}


def _put_torch_threads(values: Values) -> None:
    sys.modules["torch"].set_num_threads(values["threads"])


def _jax() -> Values:
    every = dict(import_quietly("jax").config.values)
    return {key: value for key, value in every.items() if not _OF_THE_MACHINE.search(key)}


def _put_jax(values: Values) -> None:
    for key, value in values.items():
        import_quietly("jax").config.update(key, value)


#: What Keras keeps of a seed that was set, and where it draws without one.
_KERAS_SEED, _KERAS_DRAWS = "global_random_seed", "global_seed_generator"


def _keras() -> Values:
    keras, state = import_quietly("keras"), import_quietly("keras.src.backend.common.global_state")
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
    keras, state = import_quietly("keras"), import_quietly("keras.src.backend.common.global_state")
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


def _process() -> Values:
    return {
        "recursion": sys.getrecursionlimit(),
        "digits": sys.get_int_max_str_digits(),
        "field": csv.field_size_limit(),
        "timeout": socket.getdefaulttimeout(),
        "zone": time.tzname,
    }


def _put_process(values: Values) -> None:
    put: dict[str, Callable[[Any], object]] = {
        "recursion": sys.setrecursionlimit,
        "digits": sys.set_int_max_str_digits,
        "field": csv.field_size_limit,
        "timeout": socket.setdefaulttimeout,
        "zone": lambda _names: time.tzset(),  # by TZ, which is in place before
    }
    for key, value in values.items():
        put[key](value)


def _put_arguments(values: Values) -> None:
    sys.argv[:] = values["argv"]


def _mpmath() -> Values:
    return {"prec": import_quietly("mpmath").mp.prec, "pretty": import_quietly("mpmath").mp.pretty}


def _put_mpmath(values: Values) -> None:
    for key, value in values.items():
        setattr(import_quietly("mpmath").mp, key, value)


def _own_options(module: str, get: str, put: str) -> Setting:
    """Return the setting of a module that gives its options as a dictionary, and takes some."""

    def take(values: Values) -> None:
        getattr(import_quietly(module), put)(**values)

    return Setting(
        module, lambda: dict(getattr(import_quietly(module), get)()), take, of_thread=True
    )


def _accessors(library: str) -> Setting:
    get, put = registered.accessors, registered.put_accessors
    return Setting(library, partial(get, library), partial(put, library), first={})


SETTINGS: dict[str, Setting] = {
    "process": Setting("sys", _process, _put_process),
    # A parser of arguments reads them, and names itself after the first one.
    "arguments": Setting("sys", lambda: {"argv": sys.argv}, _put_arguments, first={}),
    "shell": Setting("IPython", shell_switches.get, shell_switches.put, of_thread=True),
    "mpmath": Setting("mpmath", _mpmath, _put_mpmath),
    "scikit-learn": _own_options("sklearn", "get_config", "set_config"),
    "xarray": _own_options("xarray", "get_options", "set_options"),
    "xgboost": _own_options("xgboost", "get_config", "set_config"),
    "warnings": Setting("warnings", lambda: {"filters": list(warnings.filters)}, _put_filters),
    "logging": Setting("logging", _levels, _put_levels, gone=logging.NOTSET),
    "logging.handlers": Setting(
        "logging", log_handlers.get, log_handlers.put, gone=log_handlers.UNCHANGED
    ),
    "locale": Setting(
        "locale",
        lambda: {"all": locale.setlocale(locale.LC_ALL)},
        _put_locale,
    ),
    "decimal": Setting("decimal", _decimal, _put_decimal, of_thread=True),
    "numpy.print": Setting(
        "numpy",
        lambda: dict(import_quietly("numpy").get_printoptions()),
        lambda values: import_quietly("numpy").set_printoptions(**values),
        of_thread=True,
    ),
    "numpy.errors": Setting(
        "numpy",
        lambda: dict(import_quietly("numpy").geterr()),
        lambda values: import_quietly("numpy").seterr(**values) and None,
        of_thread=True,
    ),
    "matplotlib": Setting("matplotlib", _rc, _put_rc),
    "matplotlib.inline": Setting(
        "matplotlib",
        lambda: {"shown": _INLINE in sys.modules},
        _put_inline,
        of_thread=True,
        first={"shown": False},
    ),
    "pandas": Setting("pandas", _pandas, _put_pandas),
    "pandas.progress": Setting(
        "pandas", patches.progress_of_pandas, patches.put_progress_of_pandas, first={}
    ),
    "asyncio.nested": Setting(
        "asyncio", patches.nested_loops, patches.put_nested_loops, of_thread=True
    ),
    "pandas.accessors": _accessors("pandas"),
    "polars.accessors": _accessors("polars"),
    "csv.dialects": Setting("csv", registered.dialects, registered.put_dialects),
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
    # As many as the machine has processors, until a cell says otherwise.
    "torch.threads": Setting("torch", _torch_threads, _put_torch_threads, of_thread=True),
}  # fmt: skip
