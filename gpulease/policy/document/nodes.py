"""Reads a YAML document node by node and remembers what is wrong with it, and where.

Owns findings (line, column, message, next step) and the typed readers of one mapping.  Refuses to
know what the document is about.  A reader that finds something wrong notes it and returns the
default, so that one pass finds everything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gpulease.policy.units import parse_duration, parse_size

#: Above this the text is refused unread; a policy is a page or two.
MAX_TEXT = 200_000
#: The document itself is four levels deep.
MAX_DEPTH = 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_NAME_RULE = "Use letters, digits, dot, dash and underscore, at most 63."

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


def compose(text: str, findings: list[Finding]) -> MappingNode | None:
    """Return the document's top mapping, or ``None`` with a finding."""
    if len(text) > MAX_TEXT:
        findings.append(Finding(1, 1, "The document is too long.", "Keep it below 200 kB."))
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
        findings.append(
            Finding(
                1,
                1,
                "The document is empty or not a mapping.",
                "Begin with the keys pools and classes.",
            )
        )
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
            message = "Anchors and aliases are not used here."
            return Finding(*place, message, "Write the values out.")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            return Finding(*place, "This is nested too deep.", "Close the brackets before.")
    return None


def _syntax(error: yaml.YAMLError) -> Finding:
    line, column = _place(getattr(error, "problem_mark", None))
    problem = getattr(error, "problem", None) or "it cannot be read"
    return Finding(line, column, f"This is not YAML: {problem}.", "Mend the syntax at this place.")


def _place(mark: Any) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)


@dataclass(frozen=True)
class Bound:
    """The longest duration (seconds) that makes sense somewhere, as people say it, and why."""

    most: float
    said: str
    why: str


#: Of every duration: a time further off could not even be written down.
LONGEST = Bound(36525 * 86400.0, "100 years", "no time so far off can be reckoned with")


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
                self._note(key, "A key must be a name.", "Write it as a plain word.")
            elif name in self._values:
                self._note(key, f"{name!r} stands here twice.", "Remove one of the two.")
            elif known is not None and name not in known:
                self._note(key, f"{what} has no key {name!r}.", _suggest(name, known))
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
                self._note(node, f"{key} must be a mapping.", "Write `name: value` lines below it.")
            node = None
        # What is missing in a section that is not there is said at its key.
        place = pair[0] if pair else self._place
        return Reader(node, self._findings, what or key, known, place)

    def entries(self, key: str, known: Sequence[str]) -> Iterator[tuple[str, Reader]]:
        """Yield name and reader of each entry of a mapping of mappings; there must be one."""
        section = self.section(key, None)
        if not section.names:
            self.wrong(key, f"{key} is missing or empty.", f"Name at least one entry under {key}.")
        for name in section.names:
            if not _NAME.fullmatch(name):
                section.wrong(name, f"{name!r} is no name.", _NAME_RULE)
            yield name, section.section(name, known, what=f"{key}.{name}")

    def text(self, key: str, default: str) -> str:
        """Return a text of one line, at most 200 characters."""
        return self._scalar(key, default, _one_line)

    def duration(self, key: str, default: float, *, least: float, bound: Bound = LONGEST) -> float:
        """Return a duration in seconds, not above ``bound``."""

        def read(raw: str) -> float:
            seconds = parse_duration(raw)
            if seconds < least:
                raise ValueError("it must be more than 0.")
            if seconds > bound.most:
                raise ValueError(f"it may be at most {bound.said}: {bound.why}.")
            return seconds

        return self._scalar(key, default, read)

    def size(self, key: str, default: int) -> int:
        """Return a size in bytes."""
        return self._scalar(key, default, parse_size)

    def whole(self, key: str, default: int, *, least: int) -> int:
        """Return a whole number."""

        def read(raw: str) -> int:
            try:
                number = int(raw)
            except ValueError:
                raise ValueError(f"{raw!r} is not a whole number.") from None
            if number < least:
                raise ValueError(f"it must be at least {least}.")
            return number

        return self._scalar(key, default, read)

    def number(self, key: str, default: float) -> float:
        """Return a number that is not negative."""

        def read(raw: str) -> float:
            try:
                number = float(raw)
            except ValueError:
                raise ValueError(f"{raw!r} is not a number.") from None
            if not math.isfinite(number) or number < 0:
                raise ValueError("it must be 0 or more.")
            return number

        return self._scalar(key, default, read)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""

        def read(raw: str) -> bool:
            if raw.lower() not in ("true", "false"):
                raise ValueError(f"{raw!r} is neither true nor false.")
            return raw.lower() == "true"

        return self._scalar(key, default, read)

    def choice(self, key: str, choices: Sequence[str], default: str | None) -> str:
        """Return one of ``choices``; without a default the key must be there."""
        if key not in self._values:
            if default is None:
                self.wrong(key, f"{self._what} lacks the key {key!r}.", _choose_from(choices))
            return default or ""

        def read(raw: str) -> str:
            if raw not in choices:
                raise ValueError(f"{raw!r} is not known here. {_suggest(raw, choices)}")
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
            self._note(node, f"{key} must be a list.", f"Write `{key}: [a, b]`.")
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
            self._note(node, f"{key}: {error}", f"Correct the value of {key}.")

    def _scalar(self, key: str, default: _T, read: Callable[[str], _T]) -> _T:
        pair = self._values.get(key)
        if pair is None:
            return default
        node = pair[1]
        if not isinstance(node, ScalarNode) or _is_null(node):
            self._note(node, f"{key} needs a single value.", f"Write `{key}: value`.")
            return default
        try:
            return read(str(node.value))
        except ValueError as error:
            self._note(node, f"{key}: {error}", f"Correct the value of {key}.")
            return default

    def _note(self, node: Node | None, message: str, next_step: str, level: str = "error") -> None:
        line, column = _place(node.start_mark if node is not None else None)
        self._findings.append(Finding(line, column, message, next_step, level))


def _is_null(node: Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _text_of(node: Node) -> str:
    if not isinstance(node, ScalarNode) or _is_null(node):
        raise ValueError("it needs a single value here.")
    return str(node.value)


def _suggest(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, 1)
    return f"Did you mean {str(close[0])!r}?" if close else _choose_from(known)


def _choose_from(known: Sequence[str]) -> str:
    return f"Use one of: {', '.join(str(k) for k in known)}." if known else "There is none yet."


def _one_line(raw: str) -> str:
    if "\n" in raw or len(raw) > 200:
        raise ValueError("it must be one line of at most 200 characters.")
    return raw
