"""The demo's servers: processes of this user, each with a home directory of its own."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from jupyterhub.spawner import SimpleLocalProcessSpawner

from gpulease.demo.options import NOTEBOOK, TORCH_NOTEBOOK
from gpulease.hub import GPULeaseSpawnerMixin
from gpulease.hub.local_ports import OwnPortMixin

#: No question and no look at the network on a student's first page.
_LAB_SETTINGS = {
    "@jupyterlab/apputils-extension/notification.jupyterlab-settings": {
        "fetchNews": "false",
        "checkForUpdates": False,
    }
}


class DemoSpawner(GPULeaseSpawnerMixin, OwnPortMixin, SimpleLocalProcessSpawner):
    """Starts a server in the student's own directory, with the demo notebooks in it."""

    async def start(self) -> Any:
        """Start the server once its home is furnished."""
        furnish(Path(self.home_dir))
        return await super().start()


def furnish(home: Path) -> None:
    """Put the demo notebooks and settings into a home; what is there already stays."""
    home.mkdir(parents=True, exist_ok=True)
    for name in (NOTEBOOK, TORCH_NOTEBOOK):
        notebook = home / name
        if not notebook.exists():
            notebook.write_text(notebook_text(name))
    for name, settings in _LAB_SETTINGS.items():
        file = home / ".jupyter" / "lab" / "user-settings" / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(settings))


def notebook_text(name: str = NOTEBOOK) -> str:
    """Return a demo notebook as it is shipped."""
    return (resources.files("gpulease.demo") / "notebooks" / name).read_text()
