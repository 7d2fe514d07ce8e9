"""Carries a notebook's variables between the home kernel and its companion.

Owns what "nothing is lost" means: which names a cell needs, which objects belong together, what
changed since when, how it travels as one pickle a component and how it is committed.  Refuses to
know of cells' output, leases, GPUs' allocation or hubs.  ``side`` knows one namespace and no peer;
``home`` and ``away`` move it between two; ``torch`` and ``jax`` know whose memory is elsewhere.
"""
