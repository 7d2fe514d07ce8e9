"""The node agent: watches the GPUs of one Kubernetes node and tells the lease service."""
