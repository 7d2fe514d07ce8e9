"""Kinds of objects: what each is reduced to, and what can be filled in place."""
