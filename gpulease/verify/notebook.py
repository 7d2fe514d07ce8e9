"""A notebook's code cells, as they run in a plain kernel and as they are sent to a GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.kernel.route import route

#: Cells with this tag are left out of every run (papermill's and nbval's way of saying things).
SKIP = "gpulease-skip"


@dataclass(frozen=True)
class CodeCell:
    """One code cell; ``number`` is its place in the notebook, from 1, text cells counted too."""

    number: int
    source: str

    @property
    def plain(self) -> str:
        """The cell as a kernel without gpulease can run it."""
        return _without_steering(route(self.source, sticky=False).body)

    @property
    def away(self) -> str:
        """The cell as one that runs on the GPU."""
        return f"%%gpu\n{self.plain}"

    @property
    def home(self) -> str:
        """The cell as one that runs in the notebook's own kernel."""
        return f"%%cpu\n{self.plain}"


def read(path: Path) -> tuple[list[CodeCell], str]:
    """Return a notebook's code cells and the name of its kernel.

    Raises:
        GPULeaseError: ``bad_notebook`` where it cannot be read or is not Python's.
    """
    found = opened(path)
    spec = found.metadata.get("kernelspec", {})
    if spec.get("language", "python") != "python":
        raise _bad(
            path, f"its language is {spec['language']}, and gpulease carries Python's values"
        )
    cells = [
        CodeCell(number, str(cell.source))
        for number, cell in enumerate(found.cells, 1)
        if cell.cell_type == "code"
        and cell.source.strip()
        and SKIP not in cell.metadata.get("tags", ())
    ]
    if not cells:
        raise _bad(path, "it has no code cells")
    return cells, str(spec.get("name") or "python3")


def opened(path: Path) -> Any:
    """Return a notebook's file as nbformat has it, of format 4.

    Raises:
        GPULeaseError: ``bad_notebook``.
    """
    import nbformat

    reading: Any = nbformat.read  # it has no types
    try:
        return reading(path, as_version=4)
    except OSError as error:
        raise _bad(path, error.strerror or "it cannot be read") from None
    except Exception as error:  # noqa: BLE001 - nbformat raises many kinds for what is none
        raise _bad(path, f"it is no notebook ({str(error).splitlines()[0][:100]})") from None


def _without_steering(body: str) -> str:
    """Drop the lines that only steer gpulease; the others keep their numbers."""
    if body.lstrip().startswith("%%"):
        return body
    return re.sub(r"(?m)^%(gpu\b.*|load_ext[ \t]+gpulease)$", "", body)


def _bad(path: Path, why: str) -> GPULeaseError:
    return GPULeaseError("bad_notebook", f"{path} cannot be used: {why}.")
