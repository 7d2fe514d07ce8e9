"""A group as bytes, and what the other side is known to have."""
