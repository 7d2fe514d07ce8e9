"""Which names code reads and writes."""
