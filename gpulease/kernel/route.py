"""Where a cell runs, decided from its text alone.

Pure: the typed cell and whether the kernel is sticky in, a ``Route`` out.  Some magics stay at
home, some run on both sides, and some are asked of the companion after its error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

#: Magics that always run at home (``%load_ext gpulease`` beside them).  TensorBoard's page is
#: reached at the notebook's own machine only.
HOME_MAGICS = frozenset(("gpu", "history", "hist", "recall", "rep", "tensorboard"))
EXTENSION_MAGICS = frozenset(("load_ext", "unload_ext", "reload_ext"))
#: Magics whose effect both sides need.
BOTH_MAGICS = frozenset(("matplotlib", "config", "autoreload", "load_ext", "env", "precision"))
#: Magics whose effect travels with the next switch: run twice, ``%cd ..`` would go up twice.
_EITHER_MAGICS = BOTH_MAGICS | {"cd"}
#: Magics that change the environment: home first, then the companion's when it is another one.
INSTALL_MAGICS = frozenset(("pip", "conda", "mamba", "micromamba", "uv"))
#: Magics about the last error: asked of the side that had it.
ERROR_MAGICS = frozenset(("debug", "tb"))

_CELL_MAGIC = re.compile(r"%%(gpu|cpu)(?:[ \t]+(.*))?")
_LINE_MAGIC = re.compile(r"%(?!%)\s*([A-Za-z_]\w*)(?:\s+(.*))?")


class Side(StrEnum):
    """Where the cell's body runs."""

    HOME = "home"
    AWAY = "away"


@dataclass(frozen=True)
class Route:
    """One cell's way.

    Attributes:
        side: where ``body`` runs.
        body: the cell without its ``%%gpu`` or ``%%cpu`` line.
        asked: True for ``%%gpu``: the person named the side for this cell.
        options: the text behind ``%%gpu``.
        first: lines that run at home before an away body.
        both: line magics whose effect the other side needs too.
        installs: line magics that change the environment.
        about_error: the cell is ``%debug`` or ``%tb``.
        reads: what may read variables: the body without gpulease's own lines.
    """

    side: Side
    body: str
    asked: bool = False
    options: str = ""
    first: tuple[str, ...] = ()
    both: tuple[str, ...] = ()
    installs: tuple[str, ...] = ()
    about_error: bool = False

    @property
    def without_installs(self) -> str:
        """The body without the lines that install something; the others keep their numbers."""
        magics = [m for m in _magics(self.body) if m.name in INSTALL_MAGICS]
        return _without(self.body, magics) if magics else self.body

    @property
    def reads(self) -> str:
        """The body without the lines that only steer; empty when it has no others."""
        left = _without(self.body, [m for m in _magics(self.body) if m.home])
        return left.strip("\n") and left


def route(cell: str, *, sticky: bool) -> Route:
    """Return where ``cell`` runs.

    A cell magic other than ``%%gpu`` and ``%%cpu`` is an ordinary cell: sticky sends it away.
    """
    lines = cell.splitlines(keepends=True)
    head = next((number for number, line in enumerate(lines) if line.strip()), None)
    if head is None:
        return Route(Side.HOME, cell)
    match = _CELL_MAGIC.fullmatch(lines[head].rstrip())
    if match is not None:
        body = _keep_numbers(lines, head)
        if match[1] == "gpu":
            inner = _magics(body)
            own = [m for m in inner if m.home]
            return Route(
                Side.AWAY,
                _without(body, own),
                asked=True,
                options=match[2] or "",
                first=tuple(m.text for m in own),
                both=_texts(inner, BOTH_MAGICS),
                installs=_texts(inner, INSTALL_MAGICS),
            )
        return Route(Side.HOME, body, asked=True, both=_texts(_magics(body), BOTH_MAGICS))
    return _plain(cell, sticky=sticky)


def _keep_numbers(lines: list[str], head: int) -> str:
    """Return what follows line ``head``, with the line numbers of the cell where it can be.

    IPython drops leading empty lines, so comments stand in; but a cell magic must come first.
    """
    body = "".join(lines[head + 1 :])
    if body.lstrip().startswith("%%"):
        return body.lstrip()
    return "#\n" * head + f"# {lines[head].strip()}\n" + body if body.strip() else ""


@dataclass(frozen=True)
class _Magic:
    name: str
    rest: str
    text: str
    number: int  # of its line, from 0

    @property
    def home(self) -> bool:
        return self.name in HOME_MAGICS or (
            self.name in EXTENSION_MAGICS and self.rest in ("gpulease", "tensorboard")
        )


def _plain(cell: str, *, sticky: bool) -> Route:
    magics = _magics(cell)
    both = _texts([m for m in magics if not m.home], BOTH_MAGICS)
    installs = _texts(magics, INSTALL_MAGICS)
    only = magics if not cell.lstrip().startswith("%%") and _is_only(cell, magics) else []
    about_error = len(only) == 1 and only[0].name in ERROR_MAGICS
    if only and all(m.home or m.name in INSTALL_MAGICS | _EITHER_MAGICS for m in only):
        return Route(Side.HOME, cell, both=both, installs=installs)
    if not sticky:
        return Route(Side.HOME, cell, both=both, installs=installs, about_error=about_error)
    own = [m for m in magics if m.home]
    body = _without(cell, own)
    first = tuple(m.text for m in own)
    return Route(
        Side.AWAY, body, first=first, both=both, installs=installs, about_error=about_error
    )


def _magics(cell: str) -> list[_Magic]:
    """Return the line magics at the left margin; those inside a cell magic's body are its own.

    A line inside a string or brackets is none, however much it looks like one.
    """
    if cell.lstrip().startswith("%%"):
        return []
    lines = cell.split("\n")
    matches = [
        (n, m) for n, line in enumerate(lines) if (m := _LINE_MAGIC.fullmatch(line.rstrip()))
    ]
    starts = command_lines(lines) if matches else set()
    return [
        _Magic(match[1], (match[2] or "").strip(), match[0].strip(), number)
        for number, match in matches
        if number in starts
    ]


def command_lines(lines: list[str]) -> set[int]:
    """Return the lines, from 0, that IPython takes for commands (``%``, ``!``, ``?`` ...)."""
    from IPython.core.inputtransformer2 import EscapedCommand, make_tokens_by_line

    found: set[int] = set()
    rest = [f"{line}\n" for line in lines]
    # One at a time, as IPython does: what stands in a command is no Python and may hide the next.
    find: Any = EscapedCommand.find
    while (command := find(make_tokens_by_line(rest))) is not None:
        number = command.start_line
        if number in found:
            break
        found.add(number)
        rest[number] = "pass\n"
    return found


def _is_only(cell: str, magics: list[_Magic]) -> bool:
    """Tell whether the cell holds nothing but line magics (and comments)."""
    lines = [line.strip() for line in cell.splitlines()]
    return sum(1 for line in lines if line and not line.startswith("#")) == len(magics)


def _texts(magics: list[_Magic], names: frozenset[str]) -> tuple[str, ...]:
    return tuple(m.text for m in magics if m.name in names and not m.home)


def _without(cell: str, magics: list[_Magic]) -> str:
    """Blank the lines of ``magics``; the others keep their numbers."""
    gone = {magic.number for magic in magics}
    return "\n".join("" if n in gone else line for n, line in enumerate(cell.split("\n")))
