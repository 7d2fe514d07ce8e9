"""A lease pod from its request to its first word, and what is held meanwhile."""
