"""Runs on the GPU: the supervisor of a lease and one companion kernel a home kernel."""
