"""What is made for a lease: the pod's manifest, and what it needs around it."""
