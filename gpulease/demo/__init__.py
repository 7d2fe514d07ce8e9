"""``gpulease demo``: a whole hub on this machine, and the check that it works.

Owns the demo's people, policy, notebook and processes.  Everything else in it is the real thing:
JupyterHub, its proxy, the lease service, the students' servers.
"""

from __future__ import annotations
