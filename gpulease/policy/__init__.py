"""Decides.  Pure functions over frozen dataclasses: no clock, no I/O, no framework.

It decides who gets a GPU, when a lease counts as idle and which state follows which, and it has the
sentences for people.  ``service`` performs what is decided, ``store`` keeps it.
"""
