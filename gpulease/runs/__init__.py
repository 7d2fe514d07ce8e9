"""Whole notebooks that run without anybody: the life of a run, what follows next, and its words.

Pure: no clock, no hub, no store.  ``service.runs`` performs what is decided here, and ``lab.runs``
executes the notebook.
"""
