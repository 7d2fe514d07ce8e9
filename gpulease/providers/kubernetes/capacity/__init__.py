"""Which GPUs there are, who uses them, and which slots are free."""
