"""Reads a YAML document node by node and remembers what is wrong with it, and where.

Owns findings (line, column, message, next step) and the typed readers of one mapping.  Refuses to
know what the document is about.  A reader that finds something wrong notes it and returns the
default, so that one pass finds everything.

Not pydantic: it knows no lines and columns, each sentence and next step would be written anew for
its kinds of errors, and node agents, which have no pydantic, import policy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any, Final, TypeVar

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gpulease.policy.units import parse_duration, parse_size
from gpulease.texts import Text, joined

#: Above this the text is refused unread; a policy is a page or two.
MAX_TEXT = 200_000
#: The document itself is four levels deep.
MAX_DEPTH = 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_NAME_RULE = Text("Use letters, digits, dot, dash and underscore, at most 63.")

#: No number and no size above these means anything, and larger ones cannot be reckoned with.
MOST: Final = 10**9
LARGEST: Final = 2**60  # bytes

_T = TypeVar("_T")
_N = TypeVar("_N", int, float)


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


_BEGIN: Final = Text("Begin with the keys pools and classes.")


def compose(text: str, findings: list[Finding], begin: str = _BEGIN) -> MappingNode | None:
    """Return the document's top mapping, or ``None`` with a finding.

    ``begin``: what to do where there is no mapping.
    """
    if len(text) > MAX_TEXT:
        findings.append(
            Finding(1, 1, Text("The document is too long."), Text("Keep it below 200 kB."))
        )
        return None
    try:
        refused = _unfit(text)
        if refused is not None:
            findings.append(refused)
            return None
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        findings.append(_syntax(error))
        return None
    if not isinstance(root, MappingNode):
        findings.append(Finding(1, 1, Text("The document is empty or not a mapping."), begin))
        return None
    return root


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
            return Finding(
                *place, Text("This is nested too deep."), Text("Close the brackets before.")
            )
    return None


def _syntax(error: yaml.YAMLError) -> Finding:
    line, column = _place(getattr(error, "problem_mark", None))
    problem = getattr(error, "problem", None) or Text("it cannot be read")
    message = Text("This is not YAML: {problem}.", problem=problem)
    return Finding(line, column, message, Text("Mend the syntax at this place."))


def _place(mark: Any) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)


@dataclass(frozen=True)
class Bound:
    """The longest duration (seconds) that makes sense somewhere, as people say it, and why."""

    most: float
    said: str
    why: str


#: Of every duration: a time further off could not even be written down.
LONGEST = Bound(36525 * 86400.0, Text("100 years"), Text("no time so far off can be reckoned with"))


class Reader:
    """Typed access to one mapping of the document.

    Unknown and repeated keys are noted at once.
    """

    def __init__(
        self,
        node: MappingNode | None,
        findings: list[Finding],
        what: str,
        known: Sequence[str] | None,
        place: Node | None = None,
    ) -> None:
        self._place = place or node
        self._findings = findings
        self._what = what
        self._values: dict[str, tuple[Node, Node]] = {}
        for key, value in node.value if node is not None else ():
            name = str(key.value) if isinstance(key, ScalarNode) else ""
            if not name:
                self._note(key, Text("A key must be a name."), Text("Write it as a plain word."))
            elif name in self._values:
                message = Text("'{name}' stands here twice.", name=name)
                self._note(key, message, Text("Remove one of the two."))
            elif known is not None and name not in known:
                message = Text("{what} has no key '{name}'.", what=what, name=name)
                self._note(key, message, _suggest(name, known))
            else:
                self._values[name] = (key, value)

    def wrong(self, key: str, message: str, next_step: str, level: str = "error") -> None:
        """Note a finding at a key, or at the mapping when the key is not there."""
        pair = self._values.get(key)
        self._note(pair[0] if pair else self._place, message, next_step, level)

    @property
    def names(self) -> tuple[str, ...]:
        """The keys that are there and known."""
        return tuple(self._values)

    def section(self, key: str, known: Sequence[str] | None, what: str = "") -> Reader:
        """Return the reader of a mapping below; an empty one when it is not there."""
        pair = self._values.get(key)
        node = pair[1] if pair else None
        if node is not None and not isinstance(node, MappingNode):
            if not _is_null(node):
                message = Text("{key} must be a mapping.", key=key)
                self._note(node, message, Text("Write `name: value` lines below it."))
            node = None
        # What is missing in a section that is not there is said at its key.
        place = pair[0] if pair else self._place
        return Reader(node, self._findings, what or key, known, place)

    def entries(self, key: str, known: Sequence[str]) -> Iterator[tuple[str, Reader]]:
        """Yield name and reader of each entry of a mapping of mappings; there must be one."""
        before = len(self._findings)
        section = self.section(key, None)
        if not section.names and len(self._findings) == before:
            message = Text("{key} is missing or empty.", key=key)
            self.wrong(key, message, Text("Name at least one entry under {key}.", key=key))
        for name in section.names:
            if not _NAME.fullmatch(name):
                section.wrong(name, Text("'{name}' is no name.", name=name), _NAME_RULE)
            yield name, section.section(name, known, what=f"{key}.{name}")

    def text(self, key: str, default: str) -> str:
        """Return a text of one line, at most 200 characters."""
        return self._scalar(key, default, _one_line)

    def duration(self, key: str, default: float, *, least: float, bound: Bound = LONGEST) -> float:
        """Return a duration in seconds, not above ``bound``."""

        def read(raw: str) -> float:
            seconds = parse_duration(raw)
            if seconds < least:
                raise ValueError(Text("it must be more than 0."))
            if seconds > bound.most:
                raise ValueError(
                    Text("it may be at most {most}: {why}.", most=bound.said, why=bound.why)
                )
            return seconds

        return self._scalar(key, default, read)

    def size(self, key: str, default: int) -> int:
        """Return a size in bytes."""
        return self._scalar(key, default, lambda raw: _within(parse_size(raw), LARGEST))

    def whole(self, key: str, default: int, *, least: int) -> int:
        """Return a whole number."""

        def read(raw: str) -> int:
            try:
                number = int(raw)
            except ValueError:
                raise ValueError(Text("'{value}' is not a whole number.", value=raw)) from None
            if number < least:
                raise ValueError(Text("it must be at least {least}.", least=least))
            return _within(number, MOST)

        return self._scalar(key, default, read)

    def number(self, key: str, default: float) -> float:
        """Return a number that is not negative."""

        def read(raw: str) -> float:
            try:
                number = float(raw)
            except ValueError:
                raise ValueError(Text("'{value}' is not a number.", value=raw)) from None
            if not math.isfinite(number) or number < 0:
                raise ValueError(Text("it must be 0 or more."))
            return _within(number, MOST)

        return self._scalar(key, default, read)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""

        def read(raw: str) -> bool:
            if raw.lower() not in ("true", "false"):
                raise ValueError(Text("'{value}' is neither true nor false.", value=raw))
            return raw.lower() == "true"

        return self._scalar(key, default, read)

    def choice(self, key: str, choices: Sequence[str], default: str | None) -> str:
        """Return one of ``choices``; without a default the key must be there."""
        if key not in self._values:
            if default is None:
                message = Text("{what} lacks the key '{key}'.", what=self._what, key=key)
                self.wrong(key, message, _choose_from(choices))
            return default or ""

        def read(raw: str) -> str:
            if raw not in choices:
                unknown = Text("'{value}' is not known here.", value=raw)
                raise ValueError(joined(unknown, _suggest(raw, choices)))
            return raw

        return self._scalar(key, default or "", read)

    def texts(self, key: str, check: Callable[[str], str] | None = None) -> tuple[str, ...]:
        """Return a list of one-line texts, each as ``check`` gives it back; one alone may do.

        ``check`` raises ``ValueError`` with a sentence.
        """
        pair = self._values.get(key)
        if pair is None or _is_null(pair[1]):
            return ()
        node = pair[1]
        if isinstance(node, MappingNode):
            message = Text("{key} must be a list.", key=key)
            self._note(node, message, Text("Write `{key}: [a, b]`.", key=key))
            return ()
        found = []
        for item in node.value if isinstance(node, SequenceNode) else (node,):
            with self._noting(key, item):
                found.append((check or str)(_one_line(_text_of(item))))
        return tuple(found)

    def pairs(
        self, key: str, check: Callable[[str, str], None] | None = None
    ) -> tuple[tuple[str, str], ...]:
        """Return a mapping of texts to texts in its order.

        ``check`` gets name and value, and raises ``ValueError`` with a sentence.
        """
        section = self.section(key, None)
        found = []
        for name, (_, node) in section._values.items():  # noqa: SLF001 - its own kind
            with self._noting(key, node):
                value = _one_line(_text_of(node))
                if check is not None:
                    check(name, value)
                found.append((name, value))
        return tuple(found)

    @contextmanager
    def _noting(self, key: str, node: Node) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            self._wrong_value(key, node, error)

    def _scalar(self, key: str, default: _T, read: Callable[[str], _T]) -> _T:
        pair = self._values.get(key)
        if pair is None:
            return default
        node = pair[1]
        if not isinstance(node, ScalarNode) or _is_null(node):
            message = Text("{key} needs a single value.", key=key)
            self._note(node, message, Text("Write `{key}: value`.", key=key))
            return default
        try:
            return read(str(node.value))
        except ValueError as error:
            self._wrong_value(key, node, error)
            return default

    def _wrong_value(self, key: str, node: Node, error: ValueError) -> None:
        message = Text("{key}: {wrong}", key=key, wrong=error.args[0])
        self._note(node, message, Text("Correct the value of {key}.", key=key))

    def _note(self, node: Node | None, message: str, next_step: str, level: str = "error") -> None:
        line, column = _place(node.start_mark if node is not None else None)
        self._findings.append(Finding(line, column, message, next_step, level))


def _within(number: _N, most: int) -> _N:
    if number > most:
        raise ValueError(Text("it may be at most {most}.", most=most))
    return number


def _is_null(node: Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _text_of(node: Node) -> str:
    if not isinstance(node, ScalarNode) or _is_null(node):
        raise ValueError(Text("it needs a single value here."))
    return str(node.value)


def _suggest(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, 1)
    if close:
        return Text("Did you mean '{name}'?", name=str(close[0]))
    return _choose_from(known)


def _choose_from(known: Sequence[str]) -> str:
    if not known:
        return Text("There is none yet.")
    return Text("Use one of: {names}.", names=", ".join(str(k) for k in known))


def _one_line(raw: str) -> str:
    if "\n" in raw or len(raw) > 200:
        raise ValueError(Text("it must be one line of at most 200 characters."))
    return raw
