"""Leases on this machine: grants devices; each notebook server starts its own companions."""
