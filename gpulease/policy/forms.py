"""How values stand in the policy document: marks on the fields of the nouns that are its model.

A mark says how a value is read, written back and described.  pydantic finds it by
``__get_pydantic_core_schema__``, so the nouns need no pydantic: node agents import them without.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Annotated, Any, ClassVar, Final
from zoneinfo import available_timezones

from gpulease.sizes import format_duration, format_size, parse_duration, parse_size
from gpulease.texts import Text

#: No number and no size above these means anything, and sums of larger ones overflow.
MOST: Final = 10**9
LARGEST: Final = 2**60  # bytes
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class FormError(ValueError):
    """A value that is refused: a sentence, the next step, and where below the value it stands."""

    def __init__(self, message: str, next_step: str = "", at: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message, self.next_step, self.at = message, next_step, at


class NoEntryError(FormError):
    """A mapping without an entry, where there must be one."""


class Given:
    """A value that gpulease puts into a section; a document cannot write one."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Nothing:
    """YAML's null: an empty section, and no value."""


NOTHING: Final = Nothing()


class Section:
    """A noun that is a mapping of the document; unknown keys are refused, null is empty.

    ``ALIASES``: field -> its key, where the key is no name in Python.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}
    ALIASES: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Return pydantic's own schema with the aliases and null in it."""
        from pydantic_core import core_schema

        schema = handler(source)
        own = handler.resolve_ref_schema(schema)
        if own["schema"]["type"] == "dataclass-args":  # else it was met before
            for field in own["schema"]["fields"]:
                if key := cls.ALIASES.get(field["name"]):
                    field["validation_alias"] = field["serialization_alias"] = key
            own["schema"] = core_schema.no_info_before_validator_function(_filled, own["schema"])
        return schema


def _filled(value: Any) -> Any:
    return {} if isinstance(value, Nothing) else value


@dataclass(frozen=True, eq=False)
class Form:
    """A single value: ``read`` raises ``ValueError`` with a sentence, ``schema`` is JSON Schema."""

    read: Callable[[str], Any]
    schema: Mapping[str, Any]
    write: Callable[[Any], Any] = lambda value: value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return the schema of a text that is read by this form."""
        from pydantic_core import core_schema

        def read(value: Any) -> Any:
            if isinstance(value, Given):
                return value.value
            if not isinstance(value, str):
                raise FormError(Text("it needs a single value."))
            return self.read(value)

        write = core_schema.plain_serializer_function_ser_schema(self.write)
        return core_schema.no_info_plain_validator_function(read, serialization=write)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """Return the JSON Schema."""
        return dict(self.schema)


@dataclass(frozen=True, eq=False)
class As:
    """A value that stands in the document as another shape: ``read`` it from that, ``write`` it."""

    shape: Any
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return the schema of the shape with both ways."""
        from pydantic_core import core_schema

        inner = handler.generate_schema(self.shape)
        ways = core_schema.plain_serializer_function_ser_schema(self.write, return_schema=inner)
        filled = core_schema.no_info_before_validator_function(_filled, inner)
        return core_schema.no_info_after_validator_function(self.read, filled, serialization=ways)


@dataclass(frozen=True, eq=False)
class Named(As):
    """A mapping of names to nouns of ``shape``, which have their key as their ``name``."""

    strict: bool = False  # names have the form of names, and there is at least one

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return the schema of the mapping."""
        from pydantic_core import core_schema

        inner = As(dict[str, self.shape], self.read, self.write)  # type: ignore[name-defined]
        schema = inner.__get_pydantic_core_schema__(source, handler)
        return core_schema.no_info_before_validator_function(self._with_names, schema)

    def _with_names(self, tree: Any) -> Any:
        tree = _filled(tree)
        if not isinstance(tree, dict):
            return tree
        if self.strict and not tree:
            raise NoEntryError("")
        for name in tree if self.strict else ():
            if not _NAME.fullmatch(name):
                rule = Text("Use letters, digits, dot, dash and underscore, at most 63.")
                raise FormError(Text("'{name}' is not a valid name.", name=name), rule, (name,))
        return {name: _named(name, each) for name, each in tree.items()}


def _named(name: str, tree: Any) -> Any:
    tree = _filled(tree)
    return {**tree, "name": Given(name)} if isinstance(tree, dict) else tree


def named(shape: Any, strict: bool = False) -> Named:
    """Return the mark of a tuple of nouns with names."""
    return Named(
        shape, lambda found: tuple(found.values()), lambda all_: {x.name: x for x in all_}, strict
    )


def pairs(shape: Any) -> As:
    """Return the mark of a tuple of pairs that is a mapping in the document."""
    return As(dict[str, shape], lambda found: tuple(found.items()), dict)


class Listed:
    """A list; one value alone may do."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return the schema of the list."""
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(_listed, handler(source))


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        raise FormError(Text("it must be a list."), Text("Write `[a, b]`."))
    if isinstance(value, Nothing):
        return []
    return value if isinstance(value, list) else [value]


LISTED: Final = Listed()


def _refused(_value: str) -> Any:
    raise FormError("")


#: Not of the document: only gpulease itself gives it.
HIDDEN: Final = Form(_refused, {"hidden": True}, lambda _value: None)


@dataclass(frozen=True, eq=False)
class Duration(Form):
    """Seconds, written as 90s or 5m; bounds are said with their reason."""

    least: float = 0
    most: float = 0
    why: str = ""


ANY_DURATION: Final = {
    "type": ["string", "number"], "pattern": r"^\s*(\d+(\.\d+)?([dhms]|$))+\s*$",
}  # fmt: skip


def duration(
    least: float = 0,
    most: float = 36525 * 86400.0,
    said: str = Text("100 years"),
    why: str = Text("longer durations are not supported"),
) -> Duration:
    """Return the form of a duration between two bounds (seconds)."""

    def read(raw: str) -> float:
        seconds = parse_duration(raw)
        if seconds < least:
            raise FormError(Text("it must be more than 0."))
        if seconds > most:
            raise FormError(Text("it may be at most {most}: {why}.", most=said, why=why))
        return seconds

    schema = {**ANY_DURATION, "description": f"At most {said}."}
    return Duration(read, schema, format_duration, least, most, why)


def whole(least: int = 0, most: int = MOST) -> Form:
    """Return the form of a whole number."""

    def read(raw: str) -> int:
        try:
            number = int(raw)
        except ValueError:
            raise FormError(Text("'{value}' is not a whole number.", value=raw)) from None
        if number < least:
            raise FormError(Text("it must be at least {least}.", least=least))
        return int(_within(number, most))

    return Form(read, {"type": "integer", "minimum": least, "maximum": most})


def _within(number: float, most: int) -> float:
    if number > most:
        raise FormError(Text("it may be at most {most}.", most=most))
    return number


def _number(raw: str) -> float:
    try:
        number = float(raw)
    except ValueError:
        raise FormError(Text("'{value}' is not a number.", value=raw)) from None
    if not math.isfinite(number) or number < 0:
        raise FormError(Text("it must be 0 or more."))
    return _within(number, MOST)


def _flag(raw: str) -> bool:
    if raw.lower() not in ("true", "false"):
        raise FormError(Text("'{value}' is neither true nor false.", value=raw))
    return raw.lower() == "true"


def _line(raw: str) -> str:
    if "\n" in raw or len(raw) > 200:
        raise FormError(Text("it must be one line of at most 200 characters."))
    return raw


def text(check: Callable[[str], object], write: Callable[[Any], Any] = str) -> Form:
    """Return the form of a line that ``check`` takes or refuses; "" is none."""

    def read(raw: str) -> str:
        if _line(raw):
            check(raw)
        return raw

    return Form(read, {"type": "string"}, write)


def pattern(form: str) -> Form:
    """Return the form of a text that matches a pattern."""

    def check(raw: str) -> None:
        if not re.fullmatch(form, raw):
            raise FormError(Text("'{text}' is not of the right form.", text=raw))

    return text(check)


@cache
def zones() -> frozenset[str]:
    """Return the names of all time zones; to find them walks through folders."""
    return frozenset(available_timezones())


def _zone(raw: str) -> None:
    if raw not in zones():
        example = Text("Write for example Europe/Berlin.")
        raise FormError(Text("'{zone}' is not a time zone.", zone=raw), example)


def _day(raw: str) -> date:
    try:
        return date.fromisoformat(raw)
    except ValueError:
        step = Text("Write for example 2026-12-24.")
        raise FormError(Text("'{value}' is not a day.", value=raw), step) from None


FLAG: Final = Form(_flag, {"type": "boolean"})
NUMBER: Final = Form(_number, {"type": "number", "minimum": 0, "maximum": MOST})
WHOLE: Final = whole()
ONE: Final = whole(1)
LINE: Final = Form(_line, {"type": "string"})
ZONE: Final = text(_zone)
DAY: Final = Form(_day, {"type": "string", "format": "date"}, date.isoformat)
ANY_TIME: Final = duration()
SIZE: Final = Form(
    lambda raw: int(_within(parse_size(raw), LARGEST)),
    {"type": ["string", "integer"], "pattern": r"^\d+(\.\d+)?\s*([KMGT]i?B)?$"},
    format_size,
)

Flag = Annotated[bool, FLAG]
Number = Annotated[float, NUMBER]
Whole = Annotated[int, WHOLE]
One = Annotated[int, ONE]
Line = Annotated[str, LINE]
Lines = Annotated[tuple[Line, ...], LISTED]
Zone = Annotated[str, ZONE]
Day = Annotated[date, DAY]
Span = Annotated[float, ANY_TIME]
Size = Annotated[int, SIZE]
Hidden = Annotated[str, HIDDEN]
Image = Annotated[str, pattern(r"[a-z0-9][\w./:@-]{0,254}")]
