"""What a person is told: why a lease is as it is, and when a request may start."""
