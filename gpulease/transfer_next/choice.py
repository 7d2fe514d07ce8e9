"""Which engine carries the variables of this notebook: the first one, or the second one.

``GPULEASE_ENGINE=next`` in a notebook's environment chooses the second one; its companion has the
same environment.
"""

from __future__ import annotations

import os
from typing import Any

from gpulease.protocol.variables import ENV_ENGINE
from gpulease.transfer.api import Away, Home
from gpulease.transfer.switch.away import AwaySide  # ahead: a companion waits for its order


def home_side(namespace: dict[str, Any], **options: Any) -> Home:
    """Return the home kernel's half."""
    if _second():
        from .home import HomeSide as Next

        return Next(namespace, **options)
    from gpulease.transfer.switch.home import HomeSide

    return HomeSide(namespace, **options)


def away_side(namespace: dict[str, Any], **options: Any) -> Away:
    """Return the companion's half."""
    if _second():
        from .away import AwaySide as Next

        return Next(namespace, **options)
    return AwaySide(namespace, **options)


def _second() -> bool:
    return os.environ.get(ENV_ENGINE) == "next"
