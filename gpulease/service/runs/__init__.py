"""Runs of whole notebooks: what people may do to them, and the servers that execute them."""
