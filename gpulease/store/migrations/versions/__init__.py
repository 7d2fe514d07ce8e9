"""One module a migration; each is frozen once released."""
