"""Runs in the home kernel: route, gate, output relay, magics."""
