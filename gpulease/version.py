"""The version of this package, for rooms that may not know all others."""

from __future__ import annotations

__version__ = "0.1.0"
