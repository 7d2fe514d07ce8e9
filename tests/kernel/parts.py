"""Real home kernels for the kernel tests: started, spoken to and read message by message."""

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

from tests.helpers import wait_for

SECONDS = 60.0
ANSI = re.compile(r"\x1b\[[0-9;]*m")
Message = dict[str, Any]


@dataclass
class Cell:
    """What one executed cell published and answered."""

    messages: list[Message] = field(default_factory=list)
    reply: Message = field(default_factory=dict)
    asked: list[Message] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.reply["status"] == "ok"

    def text(self, name: str = "stdout") -> str:
        """All text of one stream."""
        return "".join(
            m["content"]["text"]
            for m in self.messages
            if m["msg_type"] == "stream" and m["content"]["name"] == name
        )

    @property
    def result(self) -> str | None:
        """The text of the displayed result."""
        for message in self.messages:
            if message["msg_type"] == "execute_result":
                text: str = message["content"]["data"]["text/plain"]
                return text
        return None

    @property
    def error(self) -> str:
        """``ename: evalue``, or ``""``."""
        if self.ok:
            return ""
        return f"{self.reply['ename']}: {self.reply['evalue']}"

    @property
    def traceback(self) -> str:
        return ANSI.sub("", "\n".join(self.reply.get("traceback", ())))

    def kinds(self) -> list[str]:
        return [m["msg_type"] for m in self.messages]

    def shown(self) -> str:
        """All texts of displays, the latest of each display id last."""
        return "\n".join(
            m["content"]["data"].get("text/plain", "")
            for m in self.messages
            if m["msg_type"] in ("display_data", "update_display_data")
        )


class HomeKernel:
    """A kernel with a client; every wait has a deadline."""

    def __init__(self, directory: Path, env: Mapping[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.others = []
        self.directory = directory
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("GPULEASE_", "JUPYTER"))},
            "IPYTHONDIR": str(directory / "ipython"),
            "PYTHONHASHSEED": "0",
            **(env or {}),
        }
        # Not TCP: whose ports are chosen before they are bound, and another kernel takes them.
        self._sockets = tempfile.TemporaryDirectory(prefix="gpulease-")  # a path that is short
        self.manager = KernelManager(
            connection_file=str(directory / "kernel-home.json"),
            transport="ipc",
            ip=f"{self._sockets.name}/kernel",
        )
        self.manager.start_kernel(env=self.env, cwd=str(directory))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=SECONDS)

    last_id = ""
    others: list[Message]  # what came meanwhile for earlier cells

    @property
    def pid(self) -> int:
        pid: int = self.manager.provisioner.pid
        return pid

    def connect(self, *, sticky: bool = False) -> None:
        """Load gpulease and connect a companion on this machine."""
        for line in ("%load_ext gpulease", "%gpu connect local"):
            cell = self.run(line)
            assert cell.ok, cell.traceback
        self.run("%gpu on" if sticky else "%gpu off")

    def run(
        self,
        code: str,
        *,
        answers: tuple[str, ...] = (),
        when: Callable[[Message], bool] | None = None,
        do: Callable[[], object] | None = None,
        silent: bool = False,
        by_tool: bool = False,
        expressions: Mapping[str, str] | None = None,
        seconds: float = SECONDS,
    ) -> Cell:
        """Execute; ``do`` is done once, when an iopub message for which ``when`` holds came.

        ``by_tool``: as a front end's variables pane asks, without a place in the history.
        """
        while self.client.stdin_channel.msg_ready():
            self.client.get_stdin_msg(timeout=1)
        allow_stdin = bool(answers) or do is not None
        msg_id = self.client.execute(
            code, silent=silent, allow_stdin=allow_stdin, store_history=not (silent or by_tool),
            user_expressions=dict(expressions or {}),
        )  # fmt: skip
        self.last_id = msg_id
        self.others.clear()
        cell = Cell()
        waiting = list(answers)
        while True:
            if self.client.stdin_channel.msg_ready():
                request = self.client.get_stdin_msg(timeout=1)
                cell.asked.append(request["content"])
                if waiting:
                    self.client.input(waiting.pop(0))
                elif do is not None:
                    do = self._once(do)
            if not self.client.iopub_channel.msg_ready():
                wait_for(self._something_came, seconds, f"a message of cell {code[:40]!r}")
                continue
            message = self.client.get_iopub_msg(timeout=seconds)
            if message["parent_header"].get("msg_id") != msg_id:
                self.others.append(message)
                continue
            state = message["content"].get("execution_state")
            if message["msg_type"] == "status":
                if state == "idle":
                    break
                continue
            if message["msg_type"] != "execute_input":
                cell.messages.append(message)
            if do is not None and when is not None and when(message):
                do = self._once(do)
        while True:
            reply = self.client.get_shell_msg(timeout=seconds)
            if reply["parent_header"].get("msg_id") == msg_id:
                cell.reply = reply["content"]
                return cell

    def late(self, text: str, msg_id: str) -> Message:
        """Wait for a display of ``text`` that request ``msg_id`` gets after its end."""
        seen: list[str] = []

        def came() -> Message | None:
            while self.client.iopub_channel.msg_ready():
                message = self.client.get_iopub_msg(timeout=SECONDS)
                shown = message["content"].get("data", {}).get("text/plain")
                if message["parent_header"].get("msg_id") == msg_id and shown is not None:
                    seen.append(shown)
                    if (text in shown) if text else not shown:
                        return message  # type: ignore[no-any-return]
            return None

        found = wait_for(came, SECONDS, f"{text!r} under an earlier cell")
        assert found is not None
        return found

    def _something_came(self) -> bool:
        return bool(self.client.iopub_channel.msg_ready() or self.client.stdin_channel.msg_ready())

    @staticmethod
    def _once(do: Callable[[], object]) -> None:
        do()

    def ask(self, kind: str, **content: Any) -> Message:
        """Send another request and return its reply's content."""
        msg_id = getattr(self.client, kind)(**content)
        while True:
            reply = self.client.get_shell_msg(timeout=SECONDS)
            if reply["parent_header"].get("msg_id") == msg_id:
                found: Message = reply["content"]
                return found

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    def stop(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=False)
        self.manager.cleanup_resources()
        self._sockets.cleanup()


def shows(text: str) -> Callable[[Message], bool]:
    """Hold for a display whose text contains ``text``."""
    return lambda message: text in message["content"].get("data", {}).get("text/plain", "")


def printed(text: str) -> Callable[[Message], bool]:
    """Hold for a stream message that contains ``text``."""

    def holds(message: Message) -> bool:
        return message["msg_type"] == "stream" and text in message["content"]["text"]

    return holds
