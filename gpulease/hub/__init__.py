"""Runs inside JupyterHub: the spawner mixin and ``setup_gpulease(c)``."""
