"""Rounds of `kill -9` on a site at work: what is killed, what the students do, what must hold."""
