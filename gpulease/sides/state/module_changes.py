"""What cells change in modules, beside the settings and plain data that travel.

It is seen in the modules and classes that a cell names or imports and in a person's own, where the
cell did it: libraries fill and wrap their own modules all the time.  Only a mark of what it is now
travels, so that the other side can say that it has another, or knows that it has the same.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

from gpulease.sides import module_files
from gpulease.sides.names.analysis import cell_use, code_use
from gpulease.sides.names.module_use import ModuleUse, module_use
from gpulease.sides.state.deep_marks import Deep, arrays_mark, has_state
from gpulease.sides.state.module_data import has_attributes, owners
from gpulease.sides.state.module_marks import CODE, is_code, is_notebooks, items_of, mark, news_of
from gpulease.sides.state.named_modules import attributes_of, name_of, named_by, read_by_functions
from gpulease.sides.state.on_import import no_longer, when_imported
from gpulease.sides.state.own_modules import OwnModules
from gpulease.sides.state.plain import plain_bytes
from gpulease.sides.state.stateful import state_bytes

#: What travels by itself, and what is each process's own; what is below one of them, too.
_KNOWN = (
    "sys.path", "sys.argv", "sys.modules", "sys.path_importer_cache", "sys.meta_path",
    "sys.path_hooks", "sys.last_", "sys.ps", "sys.displayhook", "sys.excepthook", "sys.std",
    "logging.root",
    "builtins._", "os.environ", "warnings.filters", "matplotlib.rcParams", "matplotlib.pyplot.rcP",
    "pandas.options", "torch.backends.cudnn.benchmark", "torch.backends.cudnn.deterministic",
    "jax.config", "mpmath.mp", "PIL.Image.", "gc.", "linecache.", "tracemalloc.", "IPython",
    "__main__", "gpulease",
)  # fmt: skip
#: Where libraries keep what a notebook trains, by what a person calls it: module and attribute.
_STORES = {"pyro.get_param_store()": ("pyro.poutine.runtime", "_PYRO_PARAM_STORE")}
Marks = dict[str, Any]
#: What libraries keep for themselves, whatever a cell asks of them.
_KEPT = re.compile("cache|memo|lock|init", re.IGNORECASE)


class ModuleChanges:
    """One side's record: ``mine`` and ``theirs`` give marks to each attribute that changed.

    ``past`` are those of other sides that are no more.

    ``imported`` is called when a cell has imported a module, before it can change it.
    """

    def __init__(self, own: OwnModules, imported: Callable[[], None]) -> None:
        self._own = own
        self._on_import = imported
        self.mine: dict[str, frozenset[str]] = {}
        self.theirs: dict[str, frozenset[str]] = {}
        self.past: dict[str, frozenset[str]] = {}
        #: What the cell that runs may change, by name.
        self._before: dict[str, _Seen] = {}
        self._use = ModuleUse()
        self._ns: Mapping[str, Any] = {}
        #: Attributes that its code sets, and what functions that it names handle in their modules.
        self._sets: frozenset[str] = frozenset()
        self._handled: frozenset[str] = frozenset()
        self._waiting: dict[str, Callable[[], None]] = {}
        #: Modules whose import is over, though Python does not say so yet.
        self._complete: set[str] = set()

    def told(self) -> dict[str, list[str]]:
        """Return what travels of ``mine``."""
        return {name: sorted(news) for name, news in sorted(self.mine.items())}

    def take(self, told: Mapping[str, Iterable[str]]) -> None:
        """Remember what the other side told."""
        self.theirs.update((name, frozenset(news)) for name, news in told.items())

    def forget_peer(self) -> None:
        """Expect another other side, which changed nothing yet."""
        self.past |= self.theirs
        self.theirs = {}

    def cell_begins(self, source: str, namespace: Mapping[str, Any]) -> None:
        """Remember what the modules have that the cell may change."""
        use = module_use(source)
        self._use, self._ns = use, namespace
        functions = list(read_by_functions(cell_use(source).touched, namespace))
        self._sets = use.sets.union(*(code_use(code).sets for _, code in functions))
        self._handled, self._before = frozenset(), {}
        self._complete.clear()
        for value, _ in functions:
            if name := name_of(value):
                self._see(name, value, _Kind.LIBRARYS)
        self._look()
        self._waiting = {n: partial(self._imported, n) for n in use.imported - sys.modules.keys()}
        for name, then in self._waiting.items():
            when_imported(name, then)

    def _imported(self, name: str) -> None:
        self._complete.add(name)
        self._on_import()
        self._look()

    def _look(self) -> None:
        """See what is there of what the cell names; what it has seen stays as it was then."""
        for name in self._own.names():
            self._see_module(name)
        found = list(named_by(self._use, self._ns))
        for _, function in found:
            if type(function) is FunctionType:  # it may register something
                self._handled |= frozenset(function.__code__.co_names)
        for name, owner in found:
            if sys.modules.get(name) is owner:
                self._see_module(name)
            elif type(owner) is not FunctionType:
                self._see(name, owner, _Kind.LIBRARYS if name_of(owner) else _Kind.OBJECT)
        for name in self._use.imported & sys.modules.keys():
            self._see_module(name)
        for name, (module, attribute) in _STORES.items():
            if module in sys.modules:
                self._see(name, getattr(sys.modules[module], attribute, None), _Kind.OWN)

    def _see_module(self, name: str) -> None:
        spec = getattr(sys.modules[name], "__spec__", None)
        if getattr(spec, "_initializing", False) and name not in self._complete:
            return
        if not module_files.module_digest(name):
            self._see(name, sys.modules[name], _Kind.LIBRARYS)
            return
        for prefix, owner in owners(sys.modules[name]):
            self._see(f"{name}.{prefix}".rstrip("."), owner, _Kind.OWN)

    def _see(self, name: str, owner: Any, kind: _Kind) -> None:
        if self._own.carries(name):
            return
        if name not in self._before and not name.startswith(_KNOWN):
            self._before[name] = _Seen(owner, kind, self._marks(owner, kind))

    def _marks(self, owner: Any, kind: _Kind) -> Marks:
        hidden = "_" if kind is _Kind.LIBRARYS else "__"
        more = self._sets | self._handled
        look = _mark_of_own if kind is _Kind.OWN else mark
        return {
            name: id(value) if type(value) in CODE else look(value)  # most of them, by far
            for name, value in list((attributes_of(owner) or {}).items())
            if (not name.startswith(hidden) or name in more)
            and not name.startswith("__")
            and type(value) is not ModuleType
        }

    def cell_ended(self) -> None:
        """Find out what is not as it was."""
        for waiting, then in self._waiting.items():
            no_longer(waiting, then)
        before, self._before, self._waiting = self._before, {}, {}
        found: set[int] = set()  # one object may be in several modules
        for name, seen in sorted(before.items()):
            has = self._marks(seen.owner, seen.kind)
            for attribute in sorted(seen.had.keys() | has.keys()):
                number = id((attributes_of(seen.owner) or {}).get(attribute, seen))
                if seen.had.get(attribute) != has.get(attribute) and number not in found:
                    found.add(number)
                    self._changed(f"{name}.{attribute}", attribute, seen)

    def _changed(self, key: str, attribute: str, seen: _Seen) -> None:
        held = attributes_of(seen.owner) or {}
        value, had = held.get(attribute), seen.had.get(attribute)
        if key.startswith(_KNOWN) or (seen.kind is not _Kind.OWN and _KEPT.search(attribute)):
            return
        if not self._counts(attribute, value, seen, there=attribute in held):
            return
        news = news_of(value, had)
        filled = items_of(value) is not None
        self.mine[key] = self.mine.get(key, news) | news if filled else news

    def _counts(self, attribute: str, value: Any, seen: _Seen, *, there: bool) -> bool:
        """Say whether a change is the cell's doing and does not travel by itself."""
        if seen.kind is _Kind.OWN and (plain_bytes(value) or state_bytes(value)) is not None:
            return False
        if attribute in self._sets:
            return True
        if seen.kind is _Kind.OWN:  # what a module defines anew is of its text
            return not is_code(value) or value.__module__ == "__main__"
        if is_notebooks(value):
            return True
        if not there or attribute not in seen.had or is_code(value):
            return False
        return seen.kind is _Kind.OBJECT or attribute in self._handled


def _mark_of_own(value: Any) -> Any:
    """Return the mark of what a person's module has; of an object, of all arrays in it.

    Attributes of an object of a person's own class have each a mark of their own.
    """
    if has_state(value) and not has_attributes(value) and plain_bytes(value) is None:
        return Deep(id(value), mark(value), arrays_mark(value))
    return mark(value)


class _Kind(Enum):
    """Whose something is: a person's own module or class, a library's, an object of a library's."""

    OWN = auto()
    LIBRARYS = auto()
    OBJECT = auto()


@dataclass(frozen=True)
class _Seen:
    owner: Any
    kind: _Kind
    had: Marks
