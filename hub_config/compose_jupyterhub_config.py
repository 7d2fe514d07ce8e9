"""The hub of `compose.yaml`: the demo's people and notebooks, and a lease service that runs beside.

Paths are below the working directory, where the volumes are.
"""

import secrets
from pathlib import Path

from gpulease.demo.hub import configure
from gpulease.demo.options import DemoOptions, Ports
from gpulease.system.private_files import make_private

options = DemoOptions(
    directory=Path("hub").resolve(),
    ports=Ports(public=8000, hub=8081, proxy=8001, service=9980),
)
options.directory.mkdir(mode=0o700, exist_ok=True)

# What hub and lease service know each other by: made at the first start, and kept.
token = Path("token/token")
token.parent.mkdir(mode=0o700, exist_ok=True)
make_private(token, secrets.token_hex(32).encode())  # leaves one that is there

c = get_config()
configure(c, options, service_token=token.read_text())
# In its container the hub listens on each address; compose.yaml publishes it on 127.0.0.1 alone.
c.JupyterHub.bind_url = "http://0.0.0.0:8000/"
