"""Sizes in bytes, as people read them."""

from __future__ import annotations


def size_text(size: float) -> str:
    """Return ``236 B``, ``4.0 KiB`` ..."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")
