"""Carries a notebook's variables between the home kernel and its companion.

Owns what "nothing is lost" means: which names a cell needs, which objects belong together, what
changed since when, how it travels and how it is committed.  Refuses to know of cells' output,
leases, GPUs' allocation or hubs.  ``home.HomeSide`` is the half in the home kernel,
``away.AwaySide`` the half in the companion; they speak over ``wire`` (CurveZMQ).
"""
