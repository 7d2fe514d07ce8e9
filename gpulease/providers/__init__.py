"""Where leases run: the Provider port and its adapters."""
