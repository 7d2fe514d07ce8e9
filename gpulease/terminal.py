"""What commands print for people: lines, and tables of text."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def say(text: str) -> None:
    """Write one text, and a line's end."""
    sys.stdout.write(f"{text}\n")


def table(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of as many cells each, the columns below each other."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
