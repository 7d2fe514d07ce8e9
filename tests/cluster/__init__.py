"""A real Kubernetes cluster for the tests, on one machine, without an image registry.

`python -m tests.cluster up DIR` starts one for development; the fixture `cluster` of the tests in
this folder starts one for itself, or uses the one that GPULEASE_CLUSTER names.
"""
