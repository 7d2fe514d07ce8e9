"""A real hub in a process: the settings that every one in these tests needs, and starting it."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gpulease.system.loopback_ports import free_port
from tests import logs
from tests.helpers import wait_for

#: Of everybody, at every hub here.
PASSWORD = "secret"

_SETTINGS = """
import sys

c = get_config()
c.JupyterHub.bind_url = "http://{host}:{public}/"
c.JupyterHub.hub_bind_url = "http://{host}:{hub}"
c.JupyterHub.db_url = "sqlite:///{directory}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{directory}/cookie_secret"
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = "{password}"
c.Authenticator.allow_all = True
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.ConfigurableHTTPProxy.pid_file = "{directory}/proxy.pid"
c.ConfigurableHTTPProxy.command = [sys.executable, "-m", "gpulease.demo.proxy"]
"""


@dataclass(frozen=True)
class HubPlace:
    """Where one hub listens and keeps its files; anybody may log in with ``PASSWORD``."""

    directory: Path
    host: str = "127.0.0.1"
    public: int = field(default_factory=free_port)
    hub: int = field(default_factory=free_port)
    proxy: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.public}/"

    @property
    def api(self) -> str:
        return f"http://{self.host}:{self.hub}/hub/api"

    @property
    def log(self) -> Path:
        return self.directory / "hub.log"

    def settings(self) -> str:
        """The beginning of a ``jupyterhub_config.py``: all that has nothing to do with servers."""
        members = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return _SETTINGS.format(**members, password=PASSWORD)


@contextmanager
def running_hub(
    place: HubPlace, rest: str, *, env: Mapping[str, str] | None = None, seconds: float = 170
) -> Iterator[None]:
    """Run a hub with ``place.settings()`` and then ``rest``, until the block is left."""
    config = place.directory / "jupyterhub_config.py"
    config.write_text(place.settings() + rest)
    with place.log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", str(config)],
            cwd=place.directory,
            env={**os.environ, **(env or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def runs() -> bool:
        return process.poll() is not None or "is now running at" in place.log.read_text()

    try:
        wait_for(runs, seconds, "the hub runs")
        assert process.poll() is None, place.log.read_text()
        with logs.shown(place.log):
            yield
    finally:
        process.terminate()
        process.wait(60)
