"""The service's end of what leases' supervisors say."""
