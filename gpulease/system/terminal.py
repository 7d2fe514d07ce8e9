"""What commands print and write for people: lines, tables of text, CSV."""

from __future__ import annotations

import csv
import io
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

#: What a text of several lines may hold.
LINES: Final = "\n\t"


def plain(text: str, kept: str = "") -> str:
    """Return a text in which nothing commands the terminal: it is written out instead.

    Titles and names of files are other people's: an escape sequence may recolour or retype what an
    admin reads, and a mark of writing direction turn it around.  ``kept``: characters that stay.
    """
    return "".join(
        each
        if each.isprintable() or each in kept or unicodedata.category(each) == "Zs"
        else each.encode("unicode_escape").decode()
        for each in text
    )


def say(text: str) -> None:
    """Write one text, and a line's end."""
    sys.stdout.write(f"{plain(text, kept=LINES)}\n")


def table(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of as many cells each, the columns below each other."""
    cells = [[plain(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
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
