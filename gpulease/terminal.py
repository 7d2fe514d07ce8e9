"""What commands print and write for people: lines, tables of text, CSV."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Sequence


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


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV; what a spreadsheet would take for a formula gets an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_harmless(cell) for cell in row] for row in rows)
    return text.getvalue()


def _harmless(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in set("=+-@\t\r") else cell
