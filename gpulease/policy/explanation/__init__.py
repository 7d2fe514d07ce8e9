"""What a person sees: why a lease is as it is, and when a request may start."""
