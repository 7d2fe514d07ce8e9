"""A mirror's end in a process of its own: `python -m tests.mirror.away_main`, orders on stdin."""

import json
import sys
from pathlib import Path

from gpulease.mirror.away import AwayEnd, MirrorRoot
from gpulease.mirror.rules import MirrorLimits


def main() -> None:
    root, client_key, total = json.loads(sys.stdin.readline())
    end = AwayEnd(MirrorRoot(Path(root)), MirrorLimits.of(total))
    endpoint = end.start(client_key, host="127.0.0.1", port=0)
    print(json.dumps([endpoint.address, endpoint.server_key]), flush=True)  # noqa: T201
    sys.stdin.readline()  # until whoever started this closes it
    end.close()


if __name__ == "__main__":
    main()
