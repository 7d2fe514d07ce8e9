"""Widgets of the companion, alive in home's notebook.

Each comm is registered with home's comm manager under the companion's comm id, so the front end
talks to it as to any other.  Handlers only pass messages on to the companion.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from ipykernel.comm.comm import BaseComm
from traitlets import HasTraits

from gpulease.errors import GPULeaseError
from gpulease.kernel.parts import Parts
from gpulease.transfer.api import Place

Message = dict[str, Any]
CONTROL = "jupyter.widget.control"
#: How long the companion may take to list its widgets before home's alone are told (seconds).
MERGE_SECONDS = 2.0
#: How long a cell of the notebook waits for a callback that runs on the GPU (seconds).
CALLBACK_SECONDS = 2.0
_DISABLED = "Its GPU is released: run the cell again to use it."
_CLOSED = "Widgets of GPU cells that no variable holds are disabled: their GPU is released."


class RelayedComm(BaseComm):
    """Home's end of a comm whose other end is in the companion."""

    def __init__(self, relay: WidgetRelay, comm_id: str, target_name: str) -> None:
        self._relay: WidgetRelay | None = relay
        super().__init__(  # type: ignore[no-untyped-call]
            comm_id=comm_id, target_name=target_name, primary=False
        )

    def _reply_subshell_for(self, data: Any, default: Any) -> Any:  # noqa: ARG002
        # Passing a message on never waits for home's running cell.
        return default

    @property
    def is_relayed(self) -> bool:
        """Whether the companion answers."""
        return self._relay is not None

    @property
    def is_homes_too(self) -> bool:
        """Whether the notebook has the widget itself: it came home as a variable does."""
        return self._msg_callback is not None

    def stay(self) -> None:
        """The companion is gone: the notebook's own widget answers from now on."""
        self._relay = None

    def handle_msg(self, msg: Message) -> None:
        """Pass a message of the front end on; any thread may call it."""
        if self._relay is None:
            super().handle_msg(msg)
            return
        self._relay.hand_over(self)
        self._relay.to_companion("comm_msg", msg)

    def handle_close(self, msg: Message) -> None:
        """Pass a close of the front end on."""
        if self._relay is None:
            super().handle_close(msg)
            return
        self._relay.forget(self.comm_id)
        self._relay.to_companion("comm_close", msg)

    def __del__(self) -> None:
        """Not closed by collection: the companion decides, or the end of the lease."""


class WidgetRelay:
    """All relayed comms of one kernel."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._manager = parts.kernel.comm_manager
        self._comms: dict[str, Any] = {}  # RelayedComm; its base publishes no types
        self._under_way: set[str] = set()  # messages of the page that the companion handles
        self._operable: set[str] = set()  # comms of widgets that a person can click or type in
        self._control: _ControlMerger | None = None
        self._own_target: Any = None
        parts.executor.on_idle = self._under_way.discard
        self.merge_control()

    def from_companion(self, message: Message) -> None:
        """Do at home what the companion's comm did (main thread)."""
        kind, content = message["header"]["msg_type"], message["content"]
        comm_id = content["comm_id"]
        if self._control is not None and self._control.takes(comm_id):
            self._control.answered(kind, message)
            return
        if kind == "comm_open":
            if "disabled" in ((content.get("data") or {}).get("state") or {}):
                self._operable.add(comm_id)
            self._open(comm_id, message)
            return
        # The companion may have a widget of the notebook's own, too.
        comm = self._comms.get(comm_id) or self._manager.comms.get(comm_id)
        if comm is None:
            return
        publish = {
            "data": content.get("data"),
            "metadata": message.get("metadata"),
            "buffers": message.get("buffers") or None,
        }
        if kind == "comm_close":
            self.forget(comm_id)
            # Closed for good: else it would tell the page once more when it is collected.
            unknown = self._manager.comms.get(comm_id) is not comm
            comm.close(deleting=unknown, **publish)
        else:
            comm.publish_msg(kind, **publish)

    def hand_over(self, comm: RelayedComm) -> None:
        """A callback is to run on the GPU: it finds there what home cells changed, and home its.

        As before a GPU cell that names the widget.  Not while a cell runs, nor on a thread.
        """
        parts = self._parts
        if parts.running or threading.current_thread() is not threading.main_thread():
            return
        if parts.link.attachment is None or parts.home.owner is Place.GPU:
            return
        names = [n for n, v in list(parts.shell.user_ns.items()) if _speaks(v, comm)]
        try:
            parts.home.before_gpu_cell("\n".join(names))
        except GPULeaseError as error:
            parts.link.notices.add(f"{error.sentence} A callback on the GPU ran without it.")

    def wait_for_callbacks(self) -> None:
        """Let what the page started on the GPU end, so that the next cell finds its changes."""
        parts = self._parts
        deadline = time.monotonic() + CALLBACK_SECONDS
        parts.inbox.wait_for(
            lambda: not self._under_way or parts.executor.channels is None, deadline
        )
        self._under_way.clear()

    def to_companion(self, msg_type: str, message: Message) -> None:
        """Send a front end's comm message on; any thread may call it."""
        channels = self._parts.executor.channels
        if channels is None:
            return
        msg_id = message["header"]["msg_id"]
        # Output of a callback belongs to the message that caused it.
        self._parts.relay.remember_parent(msg_id, message)
        self._under_way.add(msg_id)
        self._parts.home.ran_there()
        channels.send(
            "shell", msg_type, message["content"], msg_id=msg_id,
            metadata=message.get("metadata"), buffers=message.get("buffers"),
        )  # fmt: skip

    def forget(self, comm_id: str) -> None:
        """The comm is closed."""
        self._comms.pop(comm_id, None)

    def close_all(self) -> None:
        """Let go of every widget when its companion is gone.

        What was copied back with the variables keeps working in the notebook.  Else what can be
        operated is disabled and says so.  Nothing is removed from the page: a finished progress bar
        stays, as a plain kernel's does.
        """
        closing, self._comms = self._comms, {}
        operable, self._operable = self._operable, set()
        dead = {comm_id for comm_id, comm in closing.items() if not comm.is_homes_too}
        for comm_id, comm in closing.items():
            if comm_id not in dead:
                comm.stay()
                continue
            if comm_id in operable:
                state = {"disabled": True, "tooltip": _DISABLED}
                data = {"method": "update", "state": state, "buffer_paths": []}
                comm.publish_msg("comm_msg", data=data)
            self._manager.comms.pop(comm_id, None)
        if operable & dead:
            self._parts.link.notices.add(_CLOSED)

    def merge_control(self) -> None:
        """Answer the front end's question for all widgets with those of both sides."""
        current = self._manager.targets.get(CONTROL)
        if current is None or current is not self._own_target:
            self._inner = current
            self._own_target = self._opened_control
            self._manager.targets[CONTROL] = self._own_target

    def _open(self, comm_id: str, message: Message) -> None:
        content = message["content"]
        comm: Any = RelayedComm(self, comm_id, content["target_name"])
        self._comms[comm_id] = comm
        self._manager.register_comm(comm)
        comm.publish_msg(
            "comm_open",
            data=content.get("data"),
            metadata=message.get("metadata"),
            buffers=message.get("buffers") or None,
            target_name=content["target_name"],
            target_module=content.get("target_module"),
        )
        self.merge_control()

    def _opened_control(self, comm: Any, message: Message) -> None:
        self._control = _ControlMerger(self._parts, self._inner, comm, message)


def _speaks(value: Any, comm: RelayedComm) -> bool:
    """Say whether a variable is the widget at this comm."""
    return issubclass(type(value), HasTraits) and value._trait_values.get("comm") is comm  # noqa: SLF001


class _Capture:
    """Stands for the front end's comm while home's own widgets answer."""

    def __init__(self, comm_id: str) -> None:
        self.comm_id = comm_id
        self.callback: Any = None
        self.sent: list[tuple[dict[str, Any], list[Any]]] = []

    def on_msg(self, callback: Any) -> None:
        self.callback = callback

    def send(self, data: Any = None, metadata: Any = None, buffers: Any = None) -> None:  # noqa: ARG002
        self.sent.append((dict(data or {}), list(buffers or ())))


class _ControlMerger:
    """One control comm of the front end: asks both sides, sends one answer."""

    def __init__(self, parts: Parts, inner: Any, comm: Any, message: Message) -> None:
        self._parts = parts
        self._comm = comm
        self._home = _Capture(comm.comm_id)
        self._away_id = f"{comm.comm_id}-gpulease"
        self._waiting = False
        if inner is not None:
            inner(self._home, message)
        content = {**message["content"], "comm_id": self._away_id}
        self._send("comm_open", content, message)
        comm.on_msg(self._asked)

    def takes(self, comm_id: str) -> bool:
        """Tell whether a companion's message is about this comm."""
        return comm_id == self._away_id

    def _asked(self, message: Message) -> None:
        self._home.sent.clear()
        if self._home.callback is not None:
            self._home.callback(message)
        self._waiting = True
        content = {**message["content"], "comm_id": self._away_id}
        if not self._send("comm_msg", content, message):
            self._answer({}, [])
            return
        loop = self._parts.kernel.io_loop
        loop.call_later(MERGE_SECONDS, self._answer, {}, [])

    def answered(self, kind: str, message: Message) -> None:
        """Take the companion's answer and send both."""
        data = message["content"].get("data") or {}
        if kind == "comm_msg" and data.get("method") == "update_states":
            self._answer(data, list(message.get("buffers") or ()))

    def _answer(self, away: dict[str, Any], away_buffers: list[Any]) -> None:
        if not self._waiting:
            return
        self._waiting = False
        home, home_buffers = self._home.sent[-1] if self._home.sent else ({}, [])
        merged = {
            "method": "update_states",
            "states": {**home.get("states", {}), **away.get("states", {})},
            "buffer_paths": [*home.get("buffer_paths", []), *away.get("buffer_paths", [])],
        }
        self._comm.send(merged, buffers=[*home_buffers, *away_buffers])

    def _send(self, msg_type: str, content: Message, message: Message) -> bool:
        channels = self._parts.executor.channels
        if channels is None:
            return False
        channels.send(
            "shell", msg_type, content,
            metadata=message.get("metadata"), buffers=message.get("buffers"),
        )  # fmt: skip
        return True
