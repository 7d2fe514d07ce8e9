"""Which engine carries the variables of this notebook: the first one, or the second one.

``GPULEASE_ENGINE=next`` in a notebook's environment chooses the second one; its companion has the
same environment.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from gpulease.protocol.variables import ENV_ENGINE

from .api import Away, Home

#: Imported by name: the second engine imports nothing of the first one.
_FIRST = "gpulease.transfer.switch"


def home_side(namespace: dict[str, Any], **options: Any) -> Home:
    """Return the home kernel's half."""
    made: Home = _half("home").HomeSide(namespace, **options)
    return made


def away_side(namespace: dict[str, Any], **options: Any) -> Away:
    """Return the companion's half."""
    made: Away = _half("away").AwaySide(namespace, **options)
    return made


def _half(name: str) -> Any:
    room = __package__ if os.environ.get(ENV_ENGINE) == "next" else _FIRST
    return importlib.import_module(f"{room}.{name}")


_half("away")  # ahead: a companion waits for its order
