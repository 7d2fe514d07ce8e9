"""``python -m gpulease`` is the ``gpulease`` command."""

from __future__ import annotations

import sys

from gpulease.cli import main

sys.exit(main())
