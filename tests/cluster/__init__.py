"""Tests on a real test cluster (``testcluster``)."""
