"""One process that runs a notebook's cells from standard input and prints what it saw."""

import json
import sys

from tests.transfer.companion_main import run

if __name__ == "__main__":
    space = sys.modules["__main__"].__dict__
    for source in json.load(sys.stdin):
        run(space, source)
    sys.stdout.write(repr(space["seen"]) + "\n")
