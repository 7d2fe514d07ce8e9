"""The mirror of a working directory on a GPU, where home's volume cannot be mounted there.

Home keeps the files; the mirror is brought up to date before a GPU cell and its changes are copied
back after it.  ``plan`` decides, ``scan`` looks, ``tree`` writes; ``home`` and ``away`` are the two
ends of the wire.  Imports nothing else of the package but ``errors`` and what carries it.
"""
