"""State of the process that a plain kernel's cells share beside their variables.

Captured and applied are the working directory, changed environment entries, ``sys.path`` and
changed settings of modules; generators of random numbers travel with the variables
(``transfer.state``).  Device variables never travel, tokens only where home says so by name, and of
the others nothing that was set before this side began.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Collection, Mapping
from typing import Any

from gpulease.protocol.variables import is_of_one_process, is_secret
from gpulease.sides import module_files
from gpulease.sides.hushed import import_quietly
from gpulease.sides.names import analysis
from gpulease.sides.state.on_import import when_imported
from gpulease.sides.state.settings import Settings
from gpulease.system.private_files import current_umask

#: Which devices a process sees, and what only the machine it runs on can know.  By exact names:
#: CUDA_LAUNCH_BLOCKING or NCCL_DEBUG are a notebook's own to set.
_NEVER = frozenset({
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT",
    "CUDA_VERSION", "CUDA_CACHE_PATH", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK",
    "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_TOPO_FILE", "NCCL_HOSTID", "LD_LIBRARY_PATH",
    "PYTHONHASHSEED", "PWD", "OLDPWD", "HOSTNAME", "PYDEVD_USE_FRAME_EVAL",
    "MPLBACKEND", "COLUMNS", "LINES", "TERM", "PAGER", "GIT_PAGER", "CLICOLOR", "FORCE_COLOR",
    "CLICOLOR_FORCE",
})  # fmt: skip


def stays(name: str) -> str:
    """Say why a variable never travels, "" where it may or may be allowed to."""
    if is_of_one_process(name):
        return "it belongs to the notebook server"
    if name.upper() in _NEVER or name.upper().startswith("NVIDIA_"):
        return "it belongs to the machine"
    return ""


class ProcessState:
    """Process state of one side; ``environ`` and ``sys.path`` as they are now are its own."""

    def __init__(self) -> None:
        self._environ = dict(os.environ)
        self._changes: dict[str, str | None] = {}
        self._path = list(sys.path)
        self._travelled: set[str] = set()
        self._stand_in: dict[str, str] = {}
        self._settings = Settings()
        self._imported: set[str] = set()
        self._agreed = b""
        self._shared: frozenset[str] = frozenset()
        self._decides = False

    def share(self, names: Collection[str]) -> None:
        """Let these travel although they hold secrets, whenever they were set; home's to say."""
        self._decides = True
        self._shared = frozenset(names)

    def _may_travel(self, name: str) -> bool:
        return not stays(name) and (not is_secret(name) or name in self._shared)

    def cell_begins(self, source: str) -> None:
        """Take note of parts of packages that a cell may import: both sides import them."""
        self._imported |= analysis.imported_parts(source)

    def capture(self) -> bytes:
        """Return the state as bytes, or b'' when it is as at the last agreement."""
        data = self._pickle()
        return b"" if data == self._agreed else data

    def look(self) -> None:
        """Remember settings of this thread, where it is the main one."""
        self._settings.capture()

    def agreed(self, data: bytes) -> None:
        """The other side has taken over what ``capture`` returned."""
        self._agreed = data

    @property
    def is_agreed(self) -> bool:
        """Whether both sides ever had the same state."""
        return bool(self._agreed)

    def agree_as_it_is(self) -> None:
        """What changed since the last agreement is not the notebook's doing."""
        if self._agreed:
            self._agreed = self._pickle()

    def forget_peer(self) -> None:
        """The other side is new: it has none of this."""
        self._agreed = b""

    def prepare(self, data: bytes) -> None:
        """Let what comes with ``data`` find its modules, and these what they read when imported.

        Their folders, parts of packages, the working directory, variables of the environment.
        """
        state: dict[str, Any] = pickle.loads(data) if data else {}
        if state:
            self._put_surroundings(state)
        # By the next cell it would be done, after what the modules have was put in place.
        module_files.load_edited()
        if state:
            self._imported.update(state["imported"])
            for name in self._imported:
                when_imported(name.partition(".")[0], self._import_parts)
            self._import_parts()

    def _import_parts(self) -> None:
        for name in sorted(self._imported - sys.modules.keys()):
            if name.partition(".")[0] in sys.modules:
                _import_if_there(name)

    def apply(self, data: bytes) -> None:
        """Take over what the other side captured; from here on both agree."""
        state: dict[str, Any] = pickle.loads(data)
        self._put_surroundings(state)  # what was imported since may have changed them
        self._changes = {n: v for n, v in state["environ"].items() if self._may_travel(n)}
        self._travelled.update(state["path_added"], state["path_removed"])
        self._settings.apply(state["settings"])
        self._agreed = self._pickle()

    def _put_surroundings(self, state: dict[str, Any]) -> None:
        """Put working directory, umask, variables of the environment and search path in place."""
        self._enter(state["cwd"])
        os.umask(state["umask"])
        self._put_environ(state)
        sys.path[:] = _merged(sys.path, state)

    def _put_environ(self, state: Mapping[str, Any]) -> None:
        known = self._shared
        if not self._decides:
            self._shared = frozenset(state.get("shared", ()))
        for name, value in state["environ"].items():
            taken_back = value is None and name in known
            if not (self._may_travel(name) or taken_back):
                continue
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _enter(self, folder: str) -> None:
        """Change into ``folder``; where only the other side has it, stand still in its place."""
        if folder == _cwd():
            return
        try:
            os.chdir(folder)
            self._stand_in = {}
        except OSError:
            self._stand_in = {_cwd(): folder}

    def settle(self) -> None:
        """Put settings in place that each thread has for itself, where this is the main one."""
        self._settings.settle()

    def _pickle(self) -> bytes:
        added = [e for e in sys.path if e not in self._path or e in self._travelled]
        removed = sorted((self._travelled | set(self._path)) - set(sys.path), key=str)
        self._travelled.update(added, removed)
        state: dict[str, Any] = {
            "cwd": self._stand_in.get(_cwd(), _cwd()),
            "umask": current_umask(),
            "environ": self._changed_environ(),
            "path_added": added,
            "path_removed": removed,
            "path_order": list(sys.path),
            "settings": self._settings.capture(),
            "imported": sorted(self._imported),
        }
        if self._decides:
            state["shared"] = sorted(self._shared)
        return pickle.dumps(state, 5)

    def _changed_environ(self) -> dict[str, str | None]:
        now = dict(os.environ)
        changes = dict(self._changes)
        for name in self._environ.keys() | now.keys() | changes.keys() | self._shared:
            if not self._may_travel(name):
                if name in changes:  # it was shared once
                    changes[name] = None
            elif (
                now.get(name) != self._environ.get(name) or name in changes or name in self._shared
            ):
                changes[name] = now.get(name)
        self._changes = changes  # an entry that was told of is told of again when it goes
        return dict(sorted(changes.items()))


def _merged(mine: list[str], state: dict[str, Any]) -> list[str]:
    """Return the other side's search path, where it knows an entry, with what only this side has
    before the same neighbour as now.
    """
    known = {*mine, *state["path_added"]}
    out = [entry for entry in state["path_order"] if entry in known]
    place = len(out)
    for entry in reversed(mine):
        if entry in out:
            place = out.index(entry)
        elif entry not in state["path_removed"]:
            out.insert(place, entry)
    return out


def _import_if_there(name: str) -> None:
    """Import ``name``; where it does not import, whoever uses it will read why."""
    with contextlib.suppress(Exception):
        import_quietly(name)


def _cwd() -> str:
    try:
        return str(os.getcwd())  # noqa: PTH109
    except OSError:  # the directory was removed
        return ""
