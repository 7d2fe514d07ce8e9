"""What cells change in modules, beside the settings and plain data that travel.

Owns what of it is seen: attributes of the modules and classes of libraries that a cell names or
imports, and all of a person's own.  Nothing of it travels but a mark of what it is now, so that the
other side can say that it has another, or knows that it has the same.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from gpulease.transfer.values import module_files
from gpulease.transfer.values.names.analysis import cell_use, code_use
from gpulease.transfer.values.names.module_use import ModuleUse, module_use

from .module_data import owners
from .on_import import no_longer, when_imported
from .plain import plain_bytes

#: What travels by itself, and what is each process's own; what is below one of them, too.
_KNOWN = (
    "sys.path", "sys.argv", "sys.modules", "sys.path_importer_cache", "sys.meta_path",
    "sys.path_hooks", "sys.last_", "sys.ps", "sys.displayhook", "sys.excepthook", "sys.std",
    "logging.root",
    "builtins._", "os.environ", "warnings.filters", "matplotlib.rcParams", "matplotlib.pyplot.rcP",
    "pandas.options", "torch.backends.cudnn.benchmark", "torch.backends.cudnn.deterministic",
    "jax.config", "mpmath.mp", "gc.", "linecache.", "tracemalloc.", "IPython", "__main__",
    "gpulease",
)  # fmt: skip
Marks = dict[str, Any]
#: A container of more items is one value.
_MOST = 5_000
_CODE = frozenset({FunctionType, BuiltinFunctionType, type})
_BY_VALUE = frozenset({bool, int, str, bytes})
#: Flags of a type whose objects are dicts, lists (``Include/object.h`` of CPython).
_IS_DICT, _IS_LIST = 1 << 29, 1 << 25
#: What libraries keep for themselves, whatever a cell asks of them.
_KEPT = re.compile("cache|memo|lock|init", re.IGNORECASE)


class ModuleChanges:
    """One side's record: ``mine`` and ``theirs`` give a mark to each attribute that changed.

    ``imported`` is called when a cell has imported a module, before it can change it.
    """

    def __init__(self, imported: Callable[[], None]) -> None:
        self._on_import = imported
        self.mine: dict[str, frozenset[str]] = {}
        self.theirs: dict[str, frozenset[str]] = {}
        #: By name what the cell that runs may change, what it had, and whether all of it counts.
        self._before: dict[str, tuple[Any, Marks, bool]] = {}
        self._use = ModuleUse()
        self._ns: Mapping[str, Any] = {}
        self._named: frozenset[str] = frozenset()
        self._waiting: frozenset[str] = frozenset()

    def told(self) -> dict[str, list[str]]:
        """Return what travels of ``mine``."""
        return {name: sorted(news) for name, news in sorted(self.mine.items())}

    def take(self, told: Mapping[str, Iterable[str]]) -> None:
        """Remember what the other side told."""
        self.theirs.update((name, frozenset(news)) for name, news in told.items())

    def cell_begins(self, source: str, namespace: Mapping[str, Any]) -> None:
        """Remember what the modules have that the cell may change."""
        use = module_use(source)
        self._use, self._ns = use, namespace
        functions = list(_functions(cell_use(source).touched, namespace))
        self._named = use.attributes.union(*(code.co_names for _, code in functions))
        self._before = {}
        for value, _ in functions:
            if name := _name_of(value):
                self._see(name, value)
        self._look()
        self._waiting = use.imported - sys.modules.keys()
        for name in self._waiting:
            when_imported(name, self._imported)

    def _imported(self) -> None:
        self._on_import()
        self._look()

    def _look(self) -> None:
        """See what is there of what the cell names; what it has seen stays as it was then."""
        for name in module_files.own_modules():
            self._see_module(name)
        found = list(_named(self._use, self._ns))
        for _, function in found:
            if type(function) is FunctionType:  # it may register something in its module
                self._named |= frozenset(function.__code__.co_names)
        for name, owner in found:
            if type(owner) is not FunctionType:
                self._see(name, owner, all_of_it=not _name_of(owner))
        for name in self._use.imported & sys.modules.keys():
            self._see_module(name)

    def _see_module(self, name: str) -> None:
        own = bool(module_files.module_digest(name))
        for prefix, owner in owners(sys.modules[name]) if own else [("", sys.modules[name])]:
            self._see(f"{name}.{prefix}".rstrip("."), owner, all_of_it=own)

    def _see(self, name: str, owner: Any, *, all_of_it: bool = False) -> None:
        if name not in self._before and not name.startswith(_KNOWN):
            self._before[name] = owner, self._marks(owner, all_of_it), all_of_it

    def _marks(self, owner: Any, all_of_it: bool) -> Marks:
        hidden = "__" if all_of_it else "_"
        return {
            name: id(value) if type(value) in _CODE else _mark(value)  # most of them, by far
            for name, value in list((_attributes(owner) or {}).items())
            if (not name.startswith(hidden) or name in self._named)
            and type(value) is not ModuleType
        }

    def cell_ended(self) -> None:
        """Find out what is not as it was."""
        for name in self._waiting:
            no_longer(name, self._imported)
        before, self._before, self._waiting = self._before, {}, frozenset()
        for name, (owner, had, all_of_it) in before.items():
            has = self._marks(owner, all_of_it)
            for attribute in had.keys() | has.keys():
                key = f"{name}.{attribute}"
                if had.get(attribute) == has.get(attribute):
                    continue
                if key.startswith(_KNOWN) or _KEPT.search(attribute):
                    continue
                # Libraries put into their modules what they load at its first use.
                comes_or_goes = attribute not in had or attribute not in has
                if comes_or_goes and not all_of_it and attribute not in self._named:
                    continue
                value = (_attributes(owner) or {}).get(attribute)
                if not (all_of_it and _travels(value)):
                    news = _news(value, had.get(attribute))
                    filled = _items(value) is not None
                    self.mine[key] = self.mine.get(key, news) | news if filled else news


def _travels(value: Any) -> bool:
    return plain_bytes(value) is not None


def _named(use: ModuleUse, namespace: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the modules and classes of libraries that a cell's dotted names lead through.

    The last one may be an object or a function that a module has.
    """
    for chain in use.chains:
        first, *rest = chain.split(".")
        value = _imported(use.bound[first]) if first in use.bound else namespace.get(first)
        name = _name_of(value)
        for part in rest:
            if not name:
                break
            yield name, value
            value = vars(value).get(part)
            inside, name = f"{name}.{part}", _name_of(value)
            if not name and _attributes(value) is not None:
                yield inside, value
        if name:
            yield name, value


def _imported(dotted: str) -> Any:
    """Return what an ``import`` binds to this, as far as it is imported; None else.

    A package has a part as its attribute only when all of that is imported.
    """
    known, rest = dotted, list[str]()
    while known and known not in sys.modules:
        known, _, last = known.rpartition(".")
        rest.insert(0, last)
    value: Any = sys.modules.get(known)
    for part in rest:
        value = vars(value).get(part) if issubclass(type(value), ModuleType) else None
    return value


def _name_of(value: Any) -> str:
    """Return the name of a module or of a class that is not the notebook's own, "" else."""
    if issubclass(type(value), ModuleType):  # a proxy of one that is gone cannot be asked
        return str(vars(value).get("__name__", ""))
    if issubclass(type(value), type) and value.__module__ != "__main__":
        return f"{value.__module__}.{value.__qualname__}"
    return ""  # also of what pretends to be one


def _attributes(value: Any) -> Mapping[str, Any] | None:
    """Return what an object holds by name, without any code of its class."""
    held: Any = None
    if issubclass(type(value), type):
        held = vars(value)
    else:
        with suppress(AttributeError):
            held = object.__getattribute__(value, "__dict__")
    return held if isinstance(held, Mapping) else None


def _functions(names: frozenset[str], namespace: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Return what functions of the notebook lead to, each with the code that names it."""
    seen: set[str] = set()
    queue = [name for name in names if type(namespace.get(name)) is FunctionType]
    while queue:
        name = queue.pop()
        value = namespace.get(name)
        if name in seen or type(value) is not FunctionType:
            continue
        seen.add(name)
        for read in code_use(value.__code__).reads:
            queue.append(read)
            yield namespace.get(read), value.__code__


def _items(value: Any) -> list[tuple[Any, ...]] | None:
    """Return the items of a list, set or dict, None of all else and of what has too many."""
    if type(value).__flags__ & _IS_DICT:
        return list(dict.items(value)) if dict.__len__(value) <= _MOST else None
    kind = list if type(value).__flags__ & _IS_LIST else set
    if (kind is set and type(value) is not set) or kind.__len__(value) > _MOST:
        return None
    return [(each,) for each in kind.__iter__(value)]


def _mark(value: Any) -> Any:
    """Return what tells, for as long as one cell runs, whether this was bound or filled anew."""
    kind = type(value)
    if kind in _BY_VALUE:
        return value
    holds = kind is set or kind.__flags__ & (_IS_DICT | _IS_LIST)
    if holds and (items := _items(value)) is not None:
        return id(value), [tuple(map(id, item)) for item in items]
    return id(value)


def _news(value: Any, had: Any) -> frozenset[str]:
    """Return what is new of a value that had this mark, alike wherever it was made alike.

    Of a list, set or dict that was there it is what came into it: what libraries keep there beside
    that is not the same on both sides.
    """
    items = _items(value)
    if items is None or type(had) is not tuple or had[0] != id(value):
        return frozenset({_content(value)})
    known = {*had[1]}
    return frozenset(_content(item) for item in items if tuple(map(id, item)) not in known)


def _content(value: Any, depth: int = 3) -> str:
    if (data := plain_bytes(value)) is not None:
        return hashlib.sha256(data).hexdigest()
    if issubclass(type(value), FunctionType | BuiltinFunctionType | type):
        return f"{value.__module__}.{value.__qualname__}"
    items = [value] if type(value) is tuple else _items(value)
    if depth and items is not None:
        return repr(sorted(_content(each, depth - 1) for item in items for each in item))
    return f"{type(value).__module__}.{type(value).__qualname__}"
