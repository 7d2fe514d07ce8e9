"""``%gpu auto``: a cell that fails at home for want of a GPU continues on one.

The failing top-level statement and those after it run on the GPU, where the statement can be run a
second time: it is simple, it did nothing that stays, what it reaches is as it was, and the
generators are put back.  Else the error says why not.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gpulease.kernel.auto.kinds import FRAMEWORKS
from gpulease.sides.names.analysis import cell_use
from gpulease.transfer import state
from gpulease.transfer.met import Met
from gpulease.transfer.refuse import Limit, RefusedError
from gpulease.transfer.roots import Hidden, Roots, meant
from gpulease.transfer.survey import Survey, collector_waits
from gpulease.transfer.tables import Counterparts

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


# Effects: what running a statement a second time would do twice.  An audit hook sees most of it: a
# process cannot remove one, so there is one for all cells.  Printed and shown output is counted.

#: Audit events (https://docs.python.org/3/library/audit_events.html) by their beginning, and what
#: the code that raised one had done, as words after "it".
_EVENTS = {
    "open": "had opened a file",
    "os.": "had changed something outside Python",
    "shutil.": "had copied or removed files",
    "tempfile.": "had made a file",
    "subprocess.": "had started a program",
    "pty.": "had started a program",
    "_thread.start": "had started a thread",
    "socket.": "had used the network",
    "urllib.": "had used the network",
    "http.": "had used the network",
    "ftplib.": "had used the network",
    "smtplib.": "had used the network",
    "sqlite3.": "had used a database",
    "signal.": "had sent a signal",
    "fcntl.": "had locked a file",
    "mmap.": "had opened a file",
    "webbrowser.": "had opened a page",
    "builtins.input": "had asked for input",
}
#: Of those, what only looks.
_LOOKS = frozenset((
    "os.listdir", "os.scandir", "os.walk", "os.fwalk", "os.getxattr", "os.listxattr",
    "socket.gethostname",
))  # fmt: skip


class Effects:
    """The last watched statement's; main thread only."""

    _one: Effects | None = None  # the audit hook cannot be removed

    def __init__(self) -> None:
        #: What it did first, as words after "it"; "" for nothing.
        self.seen = ""
        self._watching = False

    @classmethod
    def of_process(cls) -> Effects:
        """Return the one that this process's audit hook speaks to."""
        if cls._one is None:
            one = cls._one = cls()
            main = threading.main_thread().ident

            def hook(event: str, _args: tuple[Any, ...]) -> None:
                if one._watching and not one.seen and threading.get_ident() == main:
                    one.seen = _meant(event)

            sys.addaudithook(hook)
        return cls._one

    def stop(self) -> None:
        """From here on nothing counts."""
        self._watching = False

    @contextmanager
    def watched(self, session: Any) -> Iterator[None]:
        """Watch the body; ``session`` is what sends this kernel's messages."""
        watched = (
            (sys.stdout, "write", "had printed something"),
            (sys.stderr, "write", "had printed something"),
            (session, "send", "had shown something"),
            (threading.Thread, "start", "had started a thread"),  # no audit event before 3.13
        )
        self.seen = ""
        placed: list[tuple[Any, str, Any]] = []
        try:
            for owner, name, words in watched:
                try:
                    own = vars(owner).get(name)
                    setattr(owner, name, self._counting(getattr(owner, name), words))
                    placed.append((owner, name, own))
                except (AttributeError, TypeError):
                    # It is somebody else's stream, and nobody knows what it does.
                    self.seen = "may have printed something"
            self._watching = True
            yield
        finally:
            self._watching = False
            for owner, name, own in placed:
                if own is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, own)

    def _counting(self, function: Any, words: str) -> Any:
        main = threading.main_thread().ident

        def counting(*args: Any, **kwargs: Any) -> Any:
            if self._watching and threading.get_ident() == main:
                self.seen = self.seen or words
            return function(*args, **kwargs)

        return counting


def _meant(event: str) -> str:
    if event in _LOOKS:
        return ""
    return next((words for start, words in _EVENTS.items() if event.startswith(start)), "")


# Snapshots: what a statement is about to reach, as it is before it runs.

Digests = dict[frozenset[str], bytes]


@dataclass(frozen=True)
class Snapshot:
    """One look; ``Snapshots.changed`` compares with it.

    It holds no value: names with the ``id`` of what they are bound to, digests of what the code can
    reach, and the states of the generators, which it puts back.  State inside installed modules is
    not looked at.
    """

    bound: dict[str, int]
    names: tuple[str, ...]
    digests: Digests
    generators: dict[str, Any]

    def put_back(self) -> None:
        """Put every generator of this process back to where it was."""
        state.apply(self.generators)


class Snapshots:
    """Takes and compares snapshots of one namespace."""

    def __init__(self, namespace: dict[str, Any], hidden: Hidden) -> None:
        self._ns = namespace
        self._glance = Glance(namespace, hidden)

    def take(self, source: str, limit: Limit) -> Snapshot | None:
        """Return what ``source`` may reach, as it is; None where that cannot be, or costs more."""
        use = cell_use(source)
        try:
            digests = self._glance.digests(["*"] if use.unbounded else use.touched, limit)
        except RefusedError:
            return None
        return Snapshot(self._bound(), _names_of(digests), digests, state.read())

    def changed(self, before: Snapshot) -> str:
        """Return what is not as it was, as words after "it", "" for nothing."""
        now = self._bound()
        moved = [
            n for n in sorted(before.bound.keys() | now.keys()) if before.bound.get(n) != now.get(n)
        ]
        if moved:
            return f"had bound {moved[0]}"
        try:
            found = self._glance.digests(before.names)
        except RefusedError:
            return "had changed a variable"
        for roots, digest in found.items():
            if digest != before.digests.get(roots):
                return f"had changed {(_names_of([roots]) or ['a function or class'])[0]}"
        return ""

    def _bound(self) -> dict[str, int]:
        return {name: id(self._ns[name]) for name in self._glance.names() if name in self._ns}


def _names_of(all_roots: Any) -> tuple[str, ...]:
    return tuple(sorted(root[2:] for roots in all_roots for root in roots if root[0] == "n"))


class Glance:
    """A look at what code can reach, of a namespace without another side; main thread only."""

    def __init__(self, namespace: dict[str, Any], hidden: Hidden) -> None:
        self._roots = Roots(namespace, hidden, {})
        self._namespace = namespace
        self._classes = Counterparts()
        self._others = Counterparts()
        self._stays = Counterparts()

    def names(self) -> list[str]:
        """Return the person's names."""
        return list(self._roots.values())

    def digests(
        self, names: Collection[str], limit: Limit | None = None
    ) -> dict[frozenset[str], bytes]:
        """Return digests of what code that reads these names can reach ("*": all), by roots.

        Raises RefusedError for what cannot be packed, or where it is more than the limit.
        """
        values = self._roots.values()
        wanted = set(values) if "*" in names else meant(names, values) & values.keys()
        with collector_waits():
            while True:
                survey = self._survey({"n:" + name: values[name] for name in wanted}, limit)
                more: set[str] = set()
                for each in survey.components:
                    if each.error is not None:
                        raise each.error
                    reads = each.reads()
                    more |= values.keys() if reads is None else reads & values.keys()
                if more <= wanted:
                    return {each.roots: each.digest for each in survey.components}
                wanted |= more
                del survey

    def _survey(self, values: dict[str, Any], limit: Limit | None) -> Survey:
        met = Met("s", self._namespace, self._classes, self._others, self._stays)
        met.limit = limit
        survey = Survey(met, values, self._roots.known())
        survey.run({})
        return survey
