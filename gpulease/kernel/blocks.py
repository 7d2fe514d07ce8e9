"""``with gpu():`` and ``@gpu.run``: a block or a function that runs on a GPU.

A block at the top level of a cell is rewritten
into a call that sends its text away.  Anywhere else a ``with`` statement cannot be taken out of
its function, so entering it raises before the body runs.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from gpulease.sides.blocks import ALTERNATIVES

HOOK = "__gpulease_block__"


class BlockTransformer(ast.NodeTransformer):
    """Rewrites ``with gpu():`` at the top level of a cell.

    ``source`` gives the text of the cell being transformed, ``is_gpu`` whether a name is ours.
    Raises ``InputRejected`` only: IPython drops a transformer that raises anything else, and the
    block would then run on the CPU in silence.
    """

    def __init__(self, source: Callable[[], str], is_gpu: Callable[[str], bool]) -> None:
        self._source = source
        self._is_gpu = is_gpu

    def visit(self, node: ast.AST) -> ast.AST:
        """Transform a module; anything else is left as it is."""
        if not isinstance(node, ast.Module):
            return node
        from IPython.core.error import InputRejected

        try:
            lines = self._source().splitlines()
            node.body = [self._statement(statement, lines) for statement in node.body]
            ast.fix_missing_locations(node)
        except InputRejected:
            raise
        except Exception as error:
            raise _rejected(f"gpulease could not read the cell: {error!r}") from error
        return node

    def _statement(self, node: ast.stmt, lines: list[str]) -> ast.stmt:
        if isinstance(node, ast.With) and self._has_gpu(node):
            return self._call(node, lines)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return node
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(node, field, None)
            if isinstance(inner, list):
                setattr(node, field, [self._statement(child, lines) for child in inner])
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            part.body = [self._statement(child, lines) for child in part.body]
        return node

    def _has_gpu(self, node: ast.With) -> bool:
        return any(self._is_ours(item.context_expr) for item in node.items)

    def _is_ours(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = node.func
        return isinstance(name, ast.Name) and self._is_gpu(name.id)

    def _call(self, node: ast.With, lines: list[str]) -> ast.stmt:
        if len(node.items) > 1 or node.items[0].optional_vars is not None:
            raise _rejected("with gpu(): stands alone: no second item and no 'as NAME'.")
        crossing = next(_crossings(node.body), None)
        if crossing is not None:
            raise _rejected(
                f"line {crossing[1]}: {crossing[0]} cannot cross the border of with gpu():. "
                f"{ALTERNATIVES}"
            )
        call = node.items[0].context_expr
        assert isinstance(call, ast.Call)
        hook = ast.Call(
            func=ast.Name(id=HOOK, ctx=ast.Load()),
            args=[ast.Constant(_block_text(node, lines)), *call.args],
            keywords=call.keywords,
        )
        return ast.copy_location(ast.Expr(value=hook), node)


def _rejected(sentence: str) -> Exception:
    """Return IPython's rejection of a cell, shown as a sentence instead of frames of ours."""
    from IPython.core.error import InputRejected

    error: Exception = InputRejected(sentence)
    error.__dict__["_render_traceback_"] = lambda: [f"InputRejected: {sentence}"]
    return error


def _block_text(node: ast.With, lines: list[str]) -> str:
    """Return the block as a cell of its own, on the lines that it has in the typed cell."""
    first, last = node.lineno, node.end_lineno or node.lineno
    text = ["#"] * (first - 1) + lines[first - 1 : last]
    if node.col_offset:
        text[first - 2] = "if True:"  # a nested block has the line of its parent above it
    found = "\n".join(text) + "\n"
    if _same(found, node):
        return found
    # Another magic (%%time) transformed a tree of its own: its text is not the cell's.
    return "#\n" * (first - 1) + ast.unparse(node) + "\n"


def _same(text: str, node: ast.With) -> bool:
    try:
        statement = ast.parse(text).body[0]
    except (SyntaxError, IndexError):
        return False
    if node.col_offset and isinstance(statement, ast.If):
        statement = statement.body[0]
    return ast.dump(statement) == ast.dump(node)


def _crossings(body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Yield ``(keyword, line)`` of what would leave the block other than by its end."""
    for statement in body:
        yield from _crossing(statement, in_loop=False)


def _crossing(node: ast.AST, *, in_loop: bool) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return
    if isinstance(node, ast.Break | ast.Continue) and not in_loop:
        yield type(node).__name__.lower(), node.lineno
    if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
        yield "await", node.lineno
    if isinstance(node, ast.Yield | ast.YieldFrom):
        yield "yield", node.lineno
    in_loop = in_loop or isinstance(node, ast.For | ast.While)
    for child in ast.iter_child_nodes(node):
        yield from _crossing(child, in_loop=in_loop)
