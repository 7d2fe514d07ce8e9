"""By this module inside, CuPy is told from a file of the same name."""
