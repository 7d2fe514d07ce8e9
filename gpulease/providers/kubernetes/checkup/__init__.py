"""What the doctor and the classes' own look find wrong with a cluster."""
