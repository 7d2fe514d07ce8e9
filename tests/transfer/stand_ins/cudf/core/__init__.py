"""By this module inside, cuDF is told from a file of the same name."""
