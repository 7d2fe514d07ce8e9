"""Which names reach which objects, so what belongs together."""
