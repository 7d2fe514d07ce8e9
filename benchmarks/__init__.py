"""What the README's figures come from: gpulease side by side with its peers, in one run.

`python -m benchmarks NAME` measures; nothing here is a test, and no test times anything.
Machines differ and are loaded, so what counts are ratios of interleaved rounds: each benchmark
takes one round of every variant in turn, and reports medians and 95th percentiles.
"""
