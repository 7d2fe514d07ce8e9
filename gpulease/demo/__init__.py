"""``gpulease demo``: a whole hub on this machine, and the check that it works.

The people, policy and notebook are made for the demo.  Everything else in it is the real thing:
JupyterHub, its proxy, the lease service, the students' servers.
"""

from __future__ import annotations
