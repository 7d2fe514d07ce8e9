"""``%gpu auto``: a cell that fails at home for want of a GPU continues on one.

The failing top-level statement and those after it run on the GPU, where the statement can be run a
second time: it is simple, it did nothing that stays, what it reaches is as it was, and the
generators are put back.  Else the error says why not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import Any

from gpulease.kernel.auto.effects import Effects
from gpulease.kernel.auto.kinds import FRAMEWORKS
from gpulease.kernel.auto.snapshot import Snapshot, Snapshots
from gpulease.transfer.refuse import Limit
from gpulease.transfer.roots import Hidden

_SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete, ast.Assert)
#: Bytes that are looked at of what a statement reaches, and of what those of one cell do.
_A_STATEMENT = 16 * 2**20
_A_CELL = 5 * _A_STATEMENT


class Resume:
    """Around the statements of home's cells while ``%gpu auto`` is on; main thread only.

    ``typed`` gives the text of the running cell, as Python; ``run`` runs such a text on the GPU and
    raises what it raises.
    """

    def __init__(
        self, shell: Any, hidden: Hidden, typed: Callable[[], str], run: Callable[[str], None]
    ) -> None:
        self._shell = shell
        self._run = run
        self._typed = typed
        self._run_ast_nodes, self._run_code = shell.run_ast_nodes, shell.run_code
        shell.run_ast_nodes, shell.run_code = self.run_ast_nodes, self.run_code
        self._effects = Effects.of_process()
        self._snapshots = Snapshots(shell.user_ns, hidden)
        self._nodes: list[ast.stmt] = []
        self._depth = self._at = 0
        self._left = _A_CELL
        self._before: Snapshot | None = None
        self._judged = self._goes_on = False
        #: The line of the running cell from which on it ran on the GPU, 0 for none.
        self.since = 0

    def remove(self) -> None:
        """Watch no more."""
        for name in ("run_ast_nodes", "run_code"):
            self._shell.__dict__.pop(name, None)

    async def run_ast_nodes(self, nodelist: list[ast.stmt], *args: Any, **kwargs: Any) -> Any:
        """Run a cell's statements (IPython calls it)."""
        self._depth += 1
        if self._depth == 1:
            self._nodes, self._at, self._left, self.since = nodelist, 0, _A_CELL, 0
        try:
            return await self._run_ast_nodes(nodelist, *args, **kwargs)
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._nodes = []

    async def run_code(self, code: Any, result: Any = None, *, async_: bool = False) -> Any:
        """Run one statement (IPython calls it); True where it failed."""
        if self._depth != 1 or self._at >= len(self._nodes):
            return await self._run_code(code, result, async_=async_)
        node = self._nodes[self._at]
        self._at += 1
        if self.since:  # it ran on the GPU
            return False
        self._before, self._judged, self._goes_on = None, False, False
        if async_ or not isinstance(node, _SIMPLE) or not _may_want_one(node):
            return await self._run_code(code, result, async_=async_)
        self._before = self._look(node)
        with self._effects.watched(self._shell.kernel.session):
            failed = await self._run_code(code, result, async_=False)
        return self._go_on(node, result) if self._goes_on else failed

    def _look(self, node: ast.stmt) -> Snapshot | None:
        limit = Limit(given := min(_A_STATEMENT, self._left))
        found = self._snapshots.take(ast.unparse(node), limit)
        self._left -= given - max(0, limit.left)
        return found

    def judge(self) -> str | None:
        """A statement failed for want of a GPU: return why the cell cannot go on on one.

        None where it will, and nothing is to be shown.
        """
        self._effects.stop()
        if self._depth != 1 or self._judged or not self._at:
            return ""
        self._judged = True
        if not isinstance(self._nodes[self._at - 1], _SIMPLE):
            return "it failed inside a larger statement"
        if self._effects.seen:
            return f"the statement that failed {self._effects.seen}"
        if self._before is None:
            return "what it uses is too large to be compared quickly, or cannot be"
        if changed := self._snapshots.changed(self._before):
            return f"the statement that failed {changed}"
        self._before.put_back()
        self._goes_on = True
        return None

    def _go_on(self, node: ast.stmt, result: Any) -> bool:
        self._before, self._goes_on = None, False
        self.since = node.lineno
        if result is not None:
            result.error_in_exec = None
        try:
            self._run(_rest(self._typed(), node))
        except BaseException as error:  # noqa: BLE001 - what the cell raised there, it raises
            if result is not None:
                result.error_in_exec = error
            self._shell.showtraceback()
            return True
        return False


def _may_want_one(node: ast.stmt) -> bool:
    """Say whether a statement could ask for a GPU: it calls something, and a library is there."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return bool(calls) and "get_ipython" not in names and any(n in sys.modules for n in FRAMEWORKS)


def _rest(source: str, node: ast.stmt) -> str:
    """Return a cell from a statement on; its lines keep their numbers."""
    lines = source.splitlines()
    first = lines[node.lineno - 1].encode()[node.col_offset :].decode()
    return "#\n" * (node.lineno - 1) + "\n".join([first, *lines[node.lineno :]])
