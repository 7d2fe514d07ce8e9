"""Decides.  Pure functions over frozen dataclasses: no clock, no I/O, no framework.

Owns who gets a GPU, when a lease counts as idle, what may follow what in a lease's life and how
each of it is said to a person.  Refuses to know how any of it is performed or stored.
"""
