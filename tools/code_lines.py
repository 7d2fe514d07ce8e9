"""Counts code lines of Python files, room by room: `python tools/code_lines.py gpulease tests`.

Blank lines, comments and docstrings do not count.  Prints one JSON object: room -> lines, files and
how many lines the longest function has.
"""

import ast
import json
import sys
import tokenize
from collections import defaultdict
from pathlib import Path

NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines on which docstrings stand."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            found.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return found


def code_lines(path: Path) -> int:
    """Return on how many lines of a file code stands."""
    found: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in NO_CODE:
                found.update(range(token.start[0], token.end[0] + 1))
    return len(found - docstring_lines(ast.parse(path.read_bytes())))


def longest_function(path: Path) -> int:
    """Return how many lines the longest function of a file takes."""
    functions = (
        node
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return max(((each.end_lineno or 0) - each.lineno + 1 for each in functions), default=0)


def counted(roots: list[Path]) -> dict[str, dict[str, int]]:
    """Return the sums of each room: a folder below a root, or the root's own files."""
    rooms: defaultdict[str, dict[str, int]] = defaultdict(
        lambda: {"lines": 0, "files": 0, "longest_function": 0}
    )
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            inside = path.relative_to(root).parts
            room = rooms["/".join((root.name, *inside[:1][: len(inside) - 1]))]
            room["lines"] += code_lines(path)
            room["files"] += 1
            room["longest_function"] = max(room["longest_function"], longest_function(path))
    return dict(rooms)


if __name__ == "__main__":
    found = counted([Path(each) for each in sys.argv[1:] or ["gpulease"]])
    found["all"] = {
        "lines": sum(each["lines"] for each in found.values()),
        "files": sum(each["files"] for each in found.values()),
        "longest_function": max(each["longest_function"] for each in found.values()),
    }
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
