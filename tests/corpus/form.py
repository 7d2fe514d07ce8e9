"""A notebook's text, read into cells."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from gpulease.verify.notebook import CodeCell

NOTEBOOKS = Path(__file__).parent / "notebooks"
#: Rooms that need the packages of constraints-frameworks.txt.
WITH_FRAMEWORKS = ("science", "learning")
_CELL = re.compile(r"(?m)^# %%(?P<text> \[markdown\])?(?: tags=(?P<tags>\[.*\]))?[ \t]*\n")


@dataclass(frozen=True)
class Notebook:
    """``tags`` are by the number of their cell; text cells count in the numbers."""

    path: Path
    title: str
    cells: list[CodeCell]
    tags: dict[int, list[str]]

    @property
    def name(self):
        return f"{self.path.parent.name}/{self.path.stem}"

    def tagged(self, tag):
        return {number for number, tags in self.tags.items() if tag in tags}


def read(path):
    """Return the notebook of a text."""
    text = path.read_text()
    marks = list(_CELL.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    cells, tags, title = [], {}, ""
    for number, (mark, end) in enumerate(zip(marks, ends, strict=True), 1):
        source = text[mark.end() : end].strip("\n")
        tags[number] = json.loads(mark["tags"] or "[]")
        if not mark["text"]:
            cells.append(CodeCell(number, source))
        elif not title:
            title = source.splitlines()[0].removeprefix("# # ")
    return Notebook(path, title, cells, tags)


def every(words=()):
    """Return the notebooks whose name has one of the words; all without words."""
    found = [read(path) for path in sorted(NOTEBOOKS.glob("*/*.ipy"))]
    return [each for each in found if not words or any(word in each.name for word in words)]
