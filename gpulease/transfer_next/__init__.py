"""The second engine: a notebook's variables as components, one pickle each.

Nothing of the product uses it yet.  ``engine`` says what it can do; ``docs/transfer.md`` describes
the engine in use.
"""
