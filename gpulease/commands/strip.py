"""``gpulease strip``: a notebook without gpulease, for graders, otter, nbgrader and GitHub.

What runs on a GPU runs in the notebook's kernel then: its options go, its code stays.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path
from typing import Any

from gpulease.commands.files import usable
from gpulease.errors import GPULeaseError
from gpulease.kernel.route import command_lines
from gpulease.system.private_files import current_umask, whole_file
from gpulease.verify.notebook import opened

_HEAD = re.compile(r"\s*%%(gpu|cpu)\b")
_LINE = re.compile(r"(\s*)%\s*(gpu\b.*|(?:re|un)?load_ext\s+gpulease\s*)")
#: Cell magics of IPython whose body is Python of the notebook.
_OF_PYTHON = re.compile(r"\s*%%(time|timeit|capture|prun)\b")
#: The metadata of notebooks and cells that gpulease's JupyterLab extension writes.
_KEY = "gpulease"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gpulease strip``."""
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK", help="notebooks")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--in-place", action="store_true", help="change the notebooks themselves")
    where.add_argument(
        "--output", metavar="FILE", help="write it there, - for stdout (one notebook)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Strip the notebooks; return 0, or 1 where something of gpulease is left in one.

    Raises:
        GPULeaseError: ``bad_notebook``, ``bad_option``, ``unreadable_file``.
    """
    if arguments.output is not None and len(arguments.notebooks) > 1:
        raise GPULeaseError(
            "bad_option",
            "--output takes one notebook.",
            next_step="Use --in-place, or one command for each notebook.",
        )
    left = 0
    for path in arguments.notebooks:
        notebook = opened(path)
        for number in strip(notebook):
            left = 1
            print(f"{path}: cell {number} still needs gpulease.", file=sys.stderr)  # noqa: T201
        _write(notebook, Path(arguments.output or path))
    return left


def strip(notebook: Any) -> list[int]:
    """Take gpulease out of a notebook; return the cells, from 1, that still need it.

    A cell that held nothing else goes, unless another tool keeps something in its metadata.
    """
    left, kept = [], []
    notebook.metadata.pop(_KEY, None)
    for number, cell in enumerate(notebook.cells, 1):
        cell.metadata.pop(_KEY, None)
        if cell.cell_type == "code":
            was, cell.source = cell.source, stripped(cell.source)
            if was.strip() and not cell.source.strip() and not cell.metadata:
                continue
            if re.search(r"%gpu\b|(?<![\w.])gpu(\.run\b|\()", _code(cell.source)):
                left.append(number)
        kept.append(cell)
    notebook.cells = kept
    return left


def stripped(source: str) -> str:
    """Return a cell without gpulease's magics, blocks and decorators."""
    lines = source.split("\n")
    head = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if _HEAD.match(lines[head]):
        return stripped("\n".join(lines[head + 1 :]))
    if _OF_PYTHON.match(lines[head]):
        return "\n".join([*lines[: head + 1], stripped("\n".join(lines[head + 1 :]))])
    if lines[head].lstrip().startswith("%%"):
        return source
    found = _without_blocks(_without_magics(lines[head:]))
    return source if found == lines[head:] else "\n".join(found).strip("\n")


def _without_magics(lines: list[str]) -> list[str]:
    commands = command_lines(lines)
    kept = []
    for number, line in enumerate(lines):
        ours = _LINE.fullmatch(line.rstrip()) if number in commands else None
        if ours is None:
            kept.append(line)
        elif ours[1]:  # it may be all that its block holds
            kept.append(f"{ours[1]}pass")
    return kept


def _without_blocks(lines: list[str]) -> list[str]:
    """Turn ``with gpu():`` into ``if True:``, which runs the block where it stands."""
    tree = _parsed(lines) if lines else None
    if tree is None:
        return lines
    found = list(lines)
    gone: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and len(node.items) == 1:
            call = node.items[0].context_expr
            if node.items[0].optional_vars is None and _is_call(call):
                first, last = node.lineno - 1, (call.end_lineno or node.lineno) - 1
                after = lines[last].encode()[call.end_col_offset :].decode().lstrip(" )")
                found[first] = found[first][: len(found[first]) - len(found[first].lstrip())]
                found[first] += f"if True{after}"
                gone |= set(range(first + 1, last + 1))
        for mark in getattr(node, "decorator_list", ()):
            if _is_run(mark):
                gone |= set(range(mark.lineno - 1, mark.end_lineno or mark.lineno))
    return [line for number, line in enumerate(found) if number not in gone]


def _is_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "gpu"


def _is_run(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "run"
        and isinstance(node.value, ast.Name)
        and node.value.id == "gpu"
    )


def _parsed(lines: list[str]) -> ast.Module | None:
    """Return the cell's tree with the cell's own lines, None where it is no Python."""
    from IPython.core.inputtransformer2 import TransformerManager

    manager: Any = TransformerManager  # it has no types
    text = str(manager().transform_cell("\n".join(lines)))
    if lines[0][:1].isspace() or text.count("\n") != len(lines):
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _code(source: str) -> str:
    """Return a cell without its comments, as far as its lines show them."""
    return "\n".join(line for line in source.split("\n") if not line.lstrip().startswith("#"))


def _write(notebook: Any, path: Path) -> None:
    import nbformat

    writes: Any = nbformat.writes  # it has no types
    text = writes(notebook)
    if str(path) == "-":
        print(text)  # noqa: T201 - what was asked for
        return
    # All of it or nothing: the notebook may be somebody's only copy.
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~current_umask()
    with usable(path, "written", "Give a path in a folder that you may write to."):
        with whole_file(path, replace=True) as file:
            file.write(f"{text}\n".encode())
        path.chmod(mode)
