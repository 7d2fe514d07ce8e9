"""What is wrong with a member of a body, in people's words: pydantic's are for programmers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pydantic import Field, TypeAdapter

from gpulease.policy.units import say_count

_FORMS: dict[str, str] = {}


def form(pattern: str, words: str, **bounds: Any) -> Any:
    """Return the field of a text of a form, with what is said of one that has not that form."""
    _FORMS[pattern] = words
    return Field(pattern=pattern, **bounds)


_WORDS: Final[Mapping[str, str | Callable[[Mapping[str, Any]], str]]] = {
    "missing": "it is missing",
    "extra_forbidden": "there is no such member",
    "string_type": "it must be a text",
    "bool_type": "it must be true or false",
    "list_type": "it must be a list",
    "dict_type": "it must be an object",
    "model_type": "it must be an object",
    "model_attributes_type": "it must be an object",
    "finite_number": "it must be a finite number",
    "greater_than": lambda ctx: f"it must be more than {ctx['gt']:g}",
    "greater_than_equal": lambda ctx: f"it must be at least {ctx['ge']:g}",
    "less_than": lambda ctx: f"it must be less than {ctx['lt']:g}",
    "less_than_equal": lambda ctx: f"it must be at most {ctx['le']:g}",
    "literal_error": lambda ctx: f"it must be {ctx['expected']}",
    "string_pattern_mismatch": lambda ctx: _FORMS.get(
        ctx["pattern"], f"it must have the form {ctx['pattern']}"
    ),
    "string_too_long": lambda ctx: (
        f"it must have at most {say_count(ctx['max_length'], 'character', 'characters')}"
    ),
    "string_too_short": lambda ctx: (
        "it must not be empty"
        if ctx["min_length"] == 1
        else f"it must have at least {ctx['min_length']} characters"
    ),
    "too_long": lambda ctx: (
        f"it must have at most {say_count(ctx['max_length'], 'entry', 'entries')}"
    ),
    "too_short": lambda ctx: (
        f"it must have at least {say_count(ctx['min_length'], 'entry', 'entries')}"
    ),
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing"), "it must be a whole number"),
    **dict.fromkeys(
        ("date_type", "date_parsing", "date_from_datetime_parsing", "date_from_datetime_inexact"),
        "it must be a day, such as 2026-10-01",
    ),
    **dict.fromkeys(
        ("datetime_type", "datetime_parsing", "datetime_from_date_parsing", "timezone_aware"),
        "it must be a time with its offset, such as 2026-10-01T14:00:00+02:00",
    ),
    **dict.fromkeys(("float_type", "float_parsing"), "it must be a number"),
}


def problem_of(detail: Mapping[str, Any]) -> str:
    """Return what is wrong with one member; of our own rules their words alone."""
    words = _WORDS.get(str(detail["type"]))
    if words is None:
        return str(detail["msg"]).removeprefix("Value error, ").removesuffix(".")
    return words if isinstance(words, str) else words(detail.get("ctx", {}))


def near(detail: Mapping[str, Any], reader: TypeAdapter[Any]) -> str:
    """Return the member that one of an unknown name may be, ``""`` where none is near."""
    if detail["type"] != "extra_forbidden":
        return ""
    schema = reader.json_schema()
    shapes = [schema, *schema.get("$defs", {}).values()]
    names = {name for shape in shapes for name in shape.get("properties", {})}
    found = get_close_matches(str(detail["loc"][-1]).lower(), sorted(names), n=1, cutoff=0.7)
    return found[0] if found else ""


def place(loc: Sequence[str | int], given: Any) -> str:
    """Return where a member stands, as people find it: entries of a list also by their name."""
    said, here = [], given
    for part in loc:
        try:
            here = here[part]
        except (LookupError, TypeError):
            here = None
        name = here.get("name") if isinstance(part, int) and isinstance(here, dict) else None
        said.append(f"{part} ({name})" if isinstance(name, str) and len(name) <= 100 else str(part))
    return ".".join(said)
