"""A second process that becomes the writer, says so, and waits to be killed."""

import sys

from gpulease.store import Store

store = Store.open(sys.argv[1])
print(store.epoch, flush=True)  # noqa: T201
sys.stdin.read()
