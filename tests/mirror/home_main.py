"""A home kernel's end in a process of its own, to be killed: `python -m tests.mirror.home_main`."""

import json
import sys
from pathlib import Path

from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.mirror.home import HomeEnd


def main() -> None:
    root, address, server_key, public, secret, total = json.loads(sys.stdin.readline())
    keys = KeyPair(public, secret)
    end = HomeEnd(Path(root), Endpoint(address, server_key), keys, total)
    print("begun", flush=True)  # noqa: T201
    end.sync()
    print("done", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
