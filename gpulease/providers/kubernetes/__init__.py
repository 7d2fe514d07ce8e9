"""Leases as pods of a Kubernetes cluster."""
