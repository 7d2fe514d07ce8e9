"""``python -m gpulease.companion``: see ``run``, and ``pod`` for ``--pod``."""

import sys

if __name__ == "__main__":
    if sys.argv[1:] == ["--pod"]:
        from gpulease.companion import pod  # this path imports as little as it can

        sys.exit(pod.run())
    from gpulease.companion.run import main

    sys.exit(main())
