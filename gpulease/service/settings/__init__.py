"""The service's options, and the plain values that come of it."""
