"""Sizes in bytes, as people read them: in decimal units, as in JupyterLab's panel."""

from __future__ import annotations


def size_text(size: float) -> str:
    """Return ``236 B``, ``4.0 kB`` ..."""
    if size < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000 or unit == "GB":
            return f"{size:.1f} {unit}"
    raise AssertionError("unreachable")
