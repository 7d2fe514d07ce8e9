"""Runs a demo notebook in a plain kernel, without its GPU lines: what it must be equal to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from gpulease.demo.hub import notebook_text
from gpulease.demo.notebook import code_cells, without_gpu
from gpulease.errors import GPULeaseError
from gpulease.protocol import names as protocol

#: Seconds for one cell.
CELL_MAX = 120.0


def run_notebook(directory: Path, name: str, result: str) -> str:
    """Run every cell at home in a fresh kernel, then ``result``; return what that printed.

    Raises:
        GPULeaseError: ``check_failed`` with the error of the cell that failed.
    """
    manager, client = start_new_kernel(
        CELL_MAX,
        "python3",
        cwd=str(directory),
        env=_environment(),
        stdout=subprocess.DEVNULL,  # its own remarks; what cells print comes as messages
        stderr=subprocess.DEVNULL,
    )
    try:
        for cell in code_cells(notebook_text(name)):
            _run(client, without_gpu(cell))
        return _run(client, result).strip()
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _run(client: BlockingKernelClient, code: str) -> str:
    printed: list[str] = []

    def take(message: dict[str, Any]) -> None:
        if message["header"]["msg_type"] == "stream" and message["content"]["name"] == "stdout":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(code, timeout=CELL_MAX, output_hook=take, allow_stdin=False)
    if reply["content"]["status"] != "ok":
        content = reply["content"]
        raise GPULeaseError(
            "check_failed",
            f"In a plain kernel the cell fails: {content.get('ename')}: {content.get('evalue')}",
        )
    return "".join(printed)


def _environment() -> dict[str, str]:
    ours = {protocol.ENV_AUTOLOAD, protocol.ENV_BUS, protocol.ENV_SERVICE_URL}
    # JupyterHub gives its servers no OMP_NUM_THREADS and the like; sums of another number of
    # threads differ in their last digits, and what was trained with them differs more.
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ours and not name.endswith("_NUM_THREADS")
    }
