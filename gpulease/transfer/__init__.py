"""Carries a notebook's variables between the home kernel and its companion.

Owns what "nothing is lost" means: which names a cell needs, which objects belong together, what
changed since when, how it travels and how it is committed.  Refuses to know of cells' output,
leases, GPUs' allocation or hubs.  ``values`` knows one namespace and no peer; ``switch`` moves it
between two; ``frameworks`` knows the libraries whose objects need a hand.
"""
