"""What the service can be told, and the plain values that come of it."""
