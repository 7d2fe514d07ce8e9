"""``python -m gpulease.companion``: see ``run``."""

import sys

from gpulease.companion.run import main

if __name__ == "__main__":
    sys.exit(main())
