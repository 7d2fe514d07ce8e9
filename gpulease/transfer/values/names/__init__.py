"""Names and code: what a cell reads, and the way from a name to an object."""
