"""The demo notebook as a list of cells, with and without its GPU lines."""

from __future__ import annotations

import json
from dataclasses import dataclass

from gpulease.demo.hub import notebook_text

#: On the cell that is to run when the lease has gone.
AFTER_RECLAIM = "after-reclaim"


@dataclass(frozen=True)
class Cell:
    """One code cell.  ``number`` counts code cells from 1."""

    number: int
    source: str
    after_reclaim: bool = False

    @property
    def on_gpu(self) -> bool:
        """Whether it asks to run on a GPU."""
        return self.source.startswith("%%gpu")

    @property
    def title(self) -> str:
        """A few words that tell the cell from the others."""
        lines = [line for line in self.source.splitlines() if not line.startswith("%%")]
        first = next((line for line in lines if line.strip()), self.source)
        return ("%%gpu  " if self.on_gpu else "") + first.strip()[:48]


def code_cells(text: str | None = None) -> list[Cell]:
    """Return the code cells of the shipped notebook, or of ``text``."""
    found = json.loads(text or notebook_text())["cells"]
    code = [cell for cell in found if cell["cell_type"] == "code"]
    return [
        Cell(number, _source(cell), AFTER_RECLAIM in cell["metadata"].get("tags", []))
        for number, cell in enumerate(code, 1)
    ]


def without_gpu(cell: Cell) -> str:
    """Return the source as somebody without gpulease would have written it."""
    lines = cell.source.splitlines()
    return "\n".join(line for line in lines if not line.startswith(("%%gpu", "%gpu")))


def _source(cell: dict[str, object]) -> str:
    source = cell["source"]
    return "".join(source) if isinstance(source, list) else str(source)
