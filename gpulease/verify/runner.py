"""One run of a notebook: a kernel of its own, its cells one after the other, and what is left.

Between two cells the GPU can be lent and taken away.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.protocol import names as protocol
from gpulease.verify.notebook import CodeCell
from gpulease.verify.placements import Placement

#: Seconds for a kernel or a companion to come up, or to be found gone.
START_SECONDS = 120.0
_PICTURE = "__import__('gpulease.verify.picture', fromlist=['picture'])"
_PID = re.compile(r"process (\d+)\)")
_OURS = "gpulease: "


@dataclass
class CellRun:
    """What one cell showed: messages and reply of the kernel, lines of gpulease's own apart."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    reply: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it raised nothing."""
        return self.reply.get("status") == "ok"


@dataclass
class NotebookRun:
    """What a notebook showed, and what its variables are at the end (``picture``).

    ``stayed``: by name, why a variable could not be looked at in the notebook's own kernel.
    """

    cells: list[CellRun] = field(default_factory=list)
    picture: dict[str, Any] = field(default_factory=dict)
    stayed: dict[str, str] = field(default_factory=dict)


class Runner:
    """Runs notebooks in ``directory``, each cell for at most ``timeout`` seconds."""

    def __init__(self, kernel_name: str, directory: Path, timeout: float) -> None:
        self._kernel_name = kernel_name
        self._directory = directory
        self._timeout = timeout

    def plain(self, cells: Sequence[CodeCell]) -> NotebookRun:
        """Run the notebook in one kernel without gpulease."""
        with self._kernel({protocol.ENV_LEASE: "verify"}) as kernel:
            # With gpulease it is there too, and no variable of the notebook's.
            kernel.silent(
                "from gpulease.sides.blocks import gpu\nget_ipython().user_ns_hidden['gpu'] = gpu"
            )
            found = NotebookRun([kernel.run(cell.plain) for cell in cells])
            names = kernel.ask(f"{_PICTURE}.user_names(globals())")
            names = [name for name in names if name != "gpu"]
            found.picture = kernel.ask(f"{_PICTURE}.picture(globals(), {names!r})")
        return found

    def placed(
        self, cells: Sequence[CodeCell], where: Placement, names: Sequence[str]
    ) -> NotebookRun:
        """Run it placed; ``names`` are looked at in the end.

        As in use there is no companion before a cell that needs one.
        """
        with self._kernel({}) as kernel:
            kernel.silent("%load_ext gpulease")
            pid = 0
            if where.typed_after:
                pid = kernel.connect()
                kernel.silent(f"%gpu {where.typed_after}")
            found = NotebookRun()
            for cell, away, between in zip(cells, where.away, where.between, strict=True):
                text = cell.plain if where.typed_after else cell.away if away else cell.home
                if not pid and (away or where.typed_after):
                    pid = kernel.connect()
                found.cells.append(kernel.run(text))
                if pid and between == "returned":
                    kernel.silent("%gpu return --force")
                    pid = 0
                elif pid and between == "killed":
                    kernel.silent("globals()")  # everything is home before
                    kernel.kill(pid)
                    pid = 0
            if where.typed_after:
                kernel.silent("%gpu off")
            found.stayed = kernel.bring(names)
            left = [name for name in names if name not in found.stayed]
            found.picture = kernel.ask(f"{_PICTURE}.picture(globals(), {left!r})")
        return found

    @contextmanager
    def _kernel(self, environ: dict[str, str]) -> Iterator[_Kernel]:
        from jupyter_client.kernelspec import NoSuchKernel
        from jupyter_client.manager import KernelManager

        manager = KernelManager(kernel_name=self._kernel_name)
        unwanted = {
            protocol.ENV_AUTOLOAD, protocol.ENV_BUS, protocol.ENV_SERVICE_URL, protocol.ENV_LEASE,
        }  # fmt: skip
        inherited = {name: value for name, value in os.environ.items() if name not in unwanted}
        try:
            manager.start_kernel(
                cwd=str(self._directory),
                env={**inherited, "PYTHONHASHSEED": "0", **environ},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except NoSuchKernel:
            raise GPULeaseError(
                "bad_notebook",
                f"There is no kernel {self._kernel_name!r} here.",
                next_step="Run it in the environment that the notebook is for, or name another"
                " kernel with --kernel.",
            ) from None
        client = manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=START_SECONDS)
            yield _Kernel(client, self._timeout)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
            manager.cleanup_resources()


class _Kernel:
    def __init__(self, client: Any, timeout: float) -> None:
        self._client = client
        self._timeout = timeout

    def run(self, code: str) -> CellRun:
        """Run a cell of the notebook.

        Raises:
            GPULeaseError: ``cell_timeout``.
        """
        return self._execute(code, self._timeout)

    def silent(self, code: str) -> CellRun:
        """Run something that the notebook does not count."""
        return self._execute(code, START_SECONDS, silent=True)

    def ask(self, expression: str) -> Any:
        """Return what an expression gives, by way of JSON."""
        text = f"{_PICTURE}.to_json({expression})"
        reply = self._execute("", self._timeout, silent=True, asked=text).reply
        found = (reply.get("user_expressions") or {}).get("asked", {})
        if found.get("status") != "ok":
            raise GPULeaseError(
                "verify_failed",
                f"The kernel could not be asked: {found.get('ename')}: {found.get('evalue')}.",
            )
        import ast

        return json.loads(ast.literal_eval(found["data"]["text/plain"]))

    def connect(self) -> int:
        """Have a companion, and return its process id.

        Raises:
            GPULeaseError: ``verify_failed`` with what the kernel says.
        """
        cell = self.silent("%gpu connect local")
        text = "".join(
            m["content"].get("data", {}).get("text/plain", "") or m["content"].get("text", "")
            for m in cell.messages
        )
        match = _PID.search(text)
        if match is None:
            why = cell.reply.get("evalue") or text.strip() or "it says nothing"
            raise GPULeaseError("verify_failed", f"No companion could be started: {why}.")
        return int(match[1])

    def kill(self, pid: int) -> None:
        """Kill the companion; its death is known afterwards."""
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + START_SECONDS
        asked = (
            "get_ipython().user_ns.get('gpu') is not None and __import__("
            "'gpulease.kernel', fromlist=['x'])._extension.session.link.attachment is None"
        )
        while not self.ask(asked):
            if time.monotonic() > deadline:
                raise GPULeaseError("verify_failed", "The death of a companion was not noticed.")
            time.sleep(0.05)  # the kernel notices between two requests

    def bring(self, names: Sequence[str]) -> dict[str, str]:
        """Bring variables to the notebook's kernel; return by name why one did not come."""
        self.silent("globals()")
        missing = self.ask(f"{_PICTURE}.missing(globals(), {list(names)!r})")
        why = {name: str(self.silent(name).reply.get("evalue", "")) for name in missing}
        return {name: text for name, text in why.items() if text != f"name {name!r} is not defined"}

    def _execute(
        self, code: str, seconds: float, *, silent: bool = False, asked: str = ""
    ) -> CellRun:
        cell = CellRun()
        began = time.monotonic()
        try:
            reply = self._client.execute_interactive(
                code,
                silent=silent,
                store_history=not silent,
                user_expressions={"asked": asked} if asked else None,
                allow_stdin=False,
                timeout=seconds,
                output_hook=_collector(cell),
            )
        except TimeoutError:
            raise GPULeaseError(
                "cell_timeout",
                f"A cell took longer than {seconds:.0f} s: {code.strip()[:60]!r}.",
                next_step="Give it more with --timeout.",
            ) from None
        cell.reply = reply["content"]
        cell.seconds = time.monotonic() - began
        return cell


def _collector(cell: CellRun) -> Callable[[dict[str, Any]], None]:
    def take(message: dict[str, Any]) -> None:
        kind, content = message["header"]["msg_type"], message["content"]
        if kind in ("status", "execute_input"):
            return
        shown = str((content.get("data") or {}).get("text/plain", "?"))
        if kind in ("display_data", "update_display_data") and (
            shown.startswith(_OURS) or not shown
        ):
            if shown:
                cell.notes.append(shown.removeprefix(_OURS))
            return
        cell.messages.append({"msg_type": kind, "content": content})

    return take
