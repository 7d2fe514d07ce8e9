"""Reads a YAML text by a model, and says of everything that is wrong where it stands.

The text becomes a tree of texts, lists and mappings, in which every path has its line and column.
pydantic validates the tree; its errors become findings at their paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gpulease.policy.forms import ANY_DURATION, NOTHING, FormError, NoEntryError
from gpulease.sizes import format_duration
from gpulease.texts import Text

if TYPE_CHECKING:
    from pydantic import TypeAdapter

#: Above this the text is refused unread; a policy is a page or two.
MAX_TEXT = 200_000
#: The document itself is four levels deep.
MAX_DEPTH = 20

Path = tuple[str | int, ...]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Finding:
    """One thing wrong with a document; ``line`` and ``column`` count from 1.

    ``level`` is ``error``, or ``caution`` for what may be meant and can be saved.
    """

    line: int
    column: int
    message: str
    next_step: str
    level: str = "error"

    def to_json(self) -> dict[str, Any]:
        """Return the members as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Problem:
    """Something wrong at a path: at its key, or at its value (``of_value``)."""

    path: Path
    message: str
    next_step: str
    of_value: bool = False
    level: str = "error"


@dataclass
class Source:
    """A text as a tree, with the places of its keys and values."""

    tree: dict[str, Any] = field(default_factory=dict)
    keys: dict[Path, Any] = field(default_factory=dict)
    values: dict[Path, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def __contains__(self, path: Path) -> bool:
        """Whether something is written at a path."""
        return path in self.values

    def finding(self, problem: Problem) -> Finding:
        """Return a problem with its place: the nearest one above where nothing is written."""
        path = problem.path
        known = self.values if problem.of_value else self.keys
        while path not in known and path:
            path = path[:-1]
        line, column = _place(known.get(path) or self.values.get(path))
        return Finding(line, column, problem.message, problem.next_step, problem.level)

    def add(self, node: Node, path: Path) -> Any:
        """Return the tree of a node, and note its places."""
        self.values[path] = node.start_mark
        if isinstance(node, MappingNode):
            return dict(self._entries(node, path))
        if isinstance(node, SequenceNode):
            return [self.add(each, (*path, n)) for n, each in enumerate(node.value)]
        return NOTHING if node.tag == "tag:yaml.org,2002:null" else str(node.value)

    def _entries(self, node: MappingNode, path: Path) -> Iterator[tuple[str, Any]]:
        for key, value in node.value:
            name = str(key.value) if isinstance(key, ScalarNode) else ""
            below = (*path, name)
            if name and below not in self.values:
                self.keys[below] = key.start_mark
                yield name, self.add(value, below)
                continue
            self.keys[*below, len(self.keys)] = key.start_mark
            self.problems.append(
                Problem((*below, len(self.keys) - 1), *(_twice(name) if name else _NO_NAME))
            )


_MISSING: Final = ("missing", "missing_argument")
_NO_NAME: Final = (Text("A key must be a name."), Text("Write it as a plain word."))


def _twice(name: str) -> tuple[str, str]:
    return Text("'{name}' is given twice.", name=name), Text("Remove one of the two.")


def compose(text: str, begin: str) -> Source | Finding:
    """Return the text as a tree, or why it is none; ``begin``: what to write first."""
    if len(text) > MAX_TEXT:
        return Finding(1, 1, Text("The document is too long."), Text("Keep it below 200 kB."))
    try:
        refused = _unfit(text)
        root = yaml.compose(text, yaml.SafeLoader) if refused is None else None
    except yaml.YAMLError as error:
        return _syntax(error)
    if refused is not None:
        return refused
    if not isinstance(root, MappingNode):
        return Finding(1, 1, Text("The document is empty or not a mapping."), begin)
    source = Source()
    source.tree = source.add(root, ())
    return source


def _unfit(text: str) -> Finding | None:
    """Find what would make reading the text expensive, at the first such place.

    Deep nesting costs the reader quadratic time; aliases let a short text unfold into a huge one.
    """
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        place = _place(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            message = Text("Anchors and aliases are not used here.")
            return Finding(*place, message, Text("Write the values out."))
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            return Finding(*place, Text("Nested too deeply."), Text("Close a bracket earlier."))
    return None


def _syntax(error: yaml.YAMLError) -> Finding:
    line, column = _place(getattr(error, "problem_mark", None))
    problem = getattr(error, "problem", None) or Text("it cannot be read")
    message = Text("This is not YAML: {problem}.", problem=problem)
    return Finding(line, column, message, Text("Correct the syntax at this place."))


def _place(mark: Any) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)


class Model(Generic[_T]):
    """A shape by which texts are read, and how its errors are said.

    Args:
        shape: the dataclass of the top mapping.
        name: what a document is called in messages.
    """

    def __init__(self, shape: type[_T], name: str) -> None:
        from pydantic import TypeAdapter  # takes long to load, and most commands need none

        self.adapter: TypeAdapter[_T] = TypeAdapter(shape)
        self.name = name
        self.schema = _plain(self.adapter.json_schema(by_alias=True))

    def read(self, source: Source, tree: dict[str, Any]) -> _T | None:
        """Return what a tree says, without what is wrong in it; problems are noted in the source.

        ``tree``: the source's own, or it with more in it.  ``None`` where too much is missing.
        """
        from pydantic import ValidationError

        try:
            return self.adapter.validate_python(tree)
        except ValidationError as error:
            errors = error.errors(include_url=False)
        problems = [self._problem(each) for each in errors]
        # What a section inherits is told where it is written.
        written = [
            told
            for told, each in zip(problems, errors, strict=True)
            if told.path in source or each["type"] in _MISSING or told.path[-1:] == (0,)
        ]
        source.problems += written or problems
        kept = deepcopy(tree)
        for each in problems:
            _drop(kept, each.path)
        try:
            return self.adapter.validate_python(kept)
        except ValidationError:
            return None

    def _problem(self, error: Any) -> Problem:
        """Return pydantic's error as a sentence."""
        wrong = error.get("ctx", {}).get("error")
        path: Path = error["loc"]
        kind, last = error["type"], str(path[-1]) if path else self.name
        if isinstance(wrong, NoEntryError) or (kind in _MISSING and len(path) == 1):
            message = Text("{key} is missing or empty.", key=last)
            return Problem(path, message, Text("Name at least one entry under {key}.", key=last))
        if isinstance(wrong, ValueError):
            return self._value(path, wrong)
        return self._shape(path, kind, last, error["input"])

    def _shape(self, path: Path, kind: str, last: str, value: Any) -> Problem:
        if kind in ("unexpected_keyword_argument", "extra_forbidden"):
            what = ".".join(map(str, path[:-1])) or self.name
            message = Text("{what} has no key '{name}'.", what=what, name=last)
            return Problem(path, message, suggested(last, self._schema_at(path[:-1])))
        if kind in _MISSING:
            what = ".".join(map(str, path[:-1])) or self.name
            message = Text("{what} lacks the key '{key}'.", what=what, key=last)
            return Problem(path, message, Text("Add {missing}.", missing=last))
        if kind == "enum":
            known = self._schema_at(path).get("enum", ())
            single = FormError(Text("it needs a single value."))
            return self._value(path, unknown(value, known) if isinstance(value, str) else single)
        message = Text("{key} must be a mapping.", key=last)
        return Problem(path, message, Text("Write `name: value` lines below it."), True)

    def _value(self, path: Path, wrong: ValueError) -> Problem:
        at = getattr(wrong, "at", ())
        path = (*path, *at)
        key = next((each for each in reversed(path) if isinstance(each, str)), self.name)
        message = Text("{key}: {wrong}", key=key, wrong=wrong.args[0])
        step = getattr(wrong, "next_step", "") or Text("Correct the value of {key}.", key=key)
        return Problem(path, message, step, not at)

    def _schema_at(self, path: Sequence[str | int]) -> Mapping[str, Any]:
        found: Any = self.schema
        for key in path:
            rest = found.get("additionalProperties", found.get("items", {}))
            found = found.get("properties", {}).get(key, rest)
        return found if isinstance(found, dict) else {}


def suggested(name: str, schema: Mapping[str, Any]) -> str:
    """Return what to write instead of a key that a mapping does not have."""
    return unknown(name, list(schema.get("properties", {}))).next_step


def unknown(name: str, known: Sequence[str]) -> FormError:
    """Return what is wrong with a value that is none of the known ones."""
    message = Text("'{value}' is not known here.", value=name)
    if close := get_close_matches(name, known, 1):
        return FormError(message, Text("Did you mean '{name}'?", name=str(close[0])))
    if not known:
        return FormError(message, Text("There is none yet."))
    return FormError(message, Text("Use one of: {names}.", names=", ".join(map(str, known))))


def _drop(tree: Any, path: Path) -> None:
    """Remove what stands at a path; of a list the whole list."""
    for key in path[:-1]:
        below = tree.get(key) if isinstance(tree, dict) else None
        if not isinstance(below, dict):
            break
        tree = below
    else:
        key = path[-1] if path else ""
    if isinstance(tree, dict):
        tree.pop(key, None)


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Return pydantic's JSON Schema without references, titles and what a document cannot say."""
    named = schema.pop("$defs", {})

    def inlined(node: Any) -> Any:
        if isinstance(node, list):
            return [inlined(each) for each in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            whole = {**named[node["$ref"].rpartition("/")[2]], "description": ""}
            node = {**whole, **node}
        if "anyOf" in node:  # a value or none
            node = {**node["anyOf"][0], **node}
            return inlined({key: each for key, each in node.items() if key != "anyOf"})
        found = {
            key: {name: inlined(below) for name, below in each.items()}
            if key == "properties"
            else inlined(each)
            for key, each in node.items()
            if key not in ("$ref", "title", "default")
        }
        if not found.get("description", True):
            del found["description"]
        _describe(found, node)
        return found

    return dict(inlined({**schema, "description": ""}))


def _describe(found: dict[str, Any], node: Mapping[str, Any]) -> None:
    """Leave out hidden keys, and say the defaults."""
    if "properties" in node:
        shown = {
            name: {**each, **_with_default(each, node["properties"][name])}
            for name, each in found["properties"].items()
            if "hidden" not in each
        }
        found["properties"] = shown
        required = [each for each in node.get("required", ()) if each in shown]
        found.pop("required", None)
        found |= {"required": required} if required else {}


def _with_default(schema: Mapping[str, Any], field_: Mapping[str, Any]) -> dict[str, Any]:
    default = field_.get("default")
    if not isinstance(default, str | int | float) or isinstance(default, bool) or default == "":
        return {}
    if schema.get("pattern") == ANY_DURATION["pattern"]:
        default = format_duration(float(default))
    elif isinstance(default, float):
        default = int(default) if default.is_integer() else default
    said = f"{schema.get('description', '')} Default {default}.".strip()
    return {"description": said, "default": default}


def without_hidden(tree: Any) -> Any:
    """Return what a model wrote, without what a document does not say."""
    if isinstance(tree, dict):
        return {key: without_hidden(each) for key, each in tree.items() if each is not None}
    return [without_hidden(each) for each in tree] if isinstance(tree, list | tuple) else tree
