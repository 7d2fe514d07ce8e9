"""A hub for one machine with GPUs, whose users are the machine's own: copy it and change it.

Run as root: `jupyterhub -f local_jupyterhub_config.py`. Each server runs under its user's account,
which is what keeps people apart on one machine; GPUs are leased cooperatively (a user who sets
CUDA_VISIBLE_DEVICES by hand is not stopped).
"""

import os

from gpulease.hub import setup_gpulease

c = get_config()

# Your own settings come first: setup_gpulease adds to them and never replaces them.
c.JupyterHub.bind_url = "http://127.0.0.1:8000/"
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {"root"}
c.JupyterHub.default_url = "/hub/home"  # where the card "GPU" is

setup_gpulease(
    c,
    # The lease service runs by itself (a systemd unit, say), so that a restart of the hub leaves
    # running GPUs alone. Start it with the same token in JUPYTERHUB_API_TOKEN:
    #   gpulease service --help
    service_url="http://127.0.0.1:9980",
    service_token=os.environ["GPULEASE_SERVICE_TOKEN"],
    # The machine's users, each with the own account.
    spawner_class="gpulease-local",
    # Who teaches which group: they see the group's leases.
    instructors={"cs101": ["ines"]},
    # Who administers GPUs besides the hub's admins.
    admins=[],
)
