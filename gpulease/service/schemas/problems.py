"""What is wrong with a member of a body, in people's words: pydantic's are for programmers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pydantic import Field, TypeAdapter

from gpulease.texts import Text, counted

#: Where something is wrong with all of it.
BODY: Final = Text("The body")
QUERY: Final = Text("The query")

_FORMS: dict[str, Text] = {}


def form(pattern: str, words: Text, **bounds: Any) -> Any:
    """Return the field of a text of a form, with what is said of one that has not that form."""
    _FORMS[pattern] = words
    return Field(pattern=pattern, **bounds)


def _least(ctx: Mapping[str, Any]) -> Text:
    if ctx["min_length"] == 1:
        return Text("it must not be empty")
    return counted(
        "it must have at least {n} character",
        "it must have at least {n} characters",
        ctx["min_length"],
    )


def _form(ctx: Mapping[str, Any]) -> Text:
    words = _FORMS.get(ctx["pattern"])
    return words or Text("it must have the form {pattern}", pattern=ctx["pattern"])


def _one_of(ctx: Mapping[str, Any]) -> Text:
    others, _, last = ctx["expected"].rpartition(" or ")
    if not others:
        return Text("it must be {expected}", expected=last)
    return Text("it must be {others} or {last}", others=others, last=last)


def _bound(ctx: Mapping[str, Any], name: str) -> str:
    """Return a bound as people write it: pydantic gives days and times as text."""
    found = ctx[name]
    return f"{found:g}" if isinstance(found, float) else str(found)


_OBJECT: Final = Text("it must be an object")
_WORDS: Final[Mapping[str, Text | Callable[[Mapping[str, Any]], Text]]] = {
    "missing": Text("it is missing"),
    "extra_forbidden": Text("there is no such member"),
    "string_type": Text("it must be a text"),
    "bool_type": Text("it must be true or false"),
    "list_type": Text("it must be a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), _OBJECT),
    "finite_number": Text("it must be a finite number"),
    "greater_than": lambda ctx: Text("it must be more than {bound}", bound=_bound(ctx, "gt")),
    "greater_than_equal": lambda ctx: Text("it must be at least {bound}", bound=_bound(ctx, "ge")),
    "less_than": lambda ctx: Text("it must be less than {bound}", bound=_bound(ctx, "lt")),
    "less_than_equal": lambda ctx: Text("it must be at most {bound}", bound=_bound(ctx, "le")),
    "literal_error": _one_of,
    "string_pattern_mismatch": _form,
    "string_too_long": lambda ctx: counted(
        "it must have at most {n} character",
        "it must have at most {n} characters",
        ctx["max_length"],
    ),
    "string_too_short": _least,
    "too_long": lambda ctx: counted(
        "it must have at most {n} entry", "it must have at most {n} entries", ctx["max_length"]
    ),
    "too_short": lambda ctx: counted(
        "it must have at least {n} entry", "it must have at least {n} entries", ctx["min_length"]
    ),
    **dict.fromkeys(
        ("int_type", "int_from_float", "int_parsing"), Text("it must be a whole number")
    ),
    **dict.fromkeys(
        ("date_type", "date_parsing", "date_from_datetime_parsing", "date_from_datetime_inexact"),
        Text("it must be a day, such as 2026-10-01"),
    ),
    **dict.fromkeys(
        ("datetime_type", "datetime_parsing", "datetime_from_date_parsing", "timezone_aware"),
        Text("it must be a time with its offset, such as 2026-10-01T14:00:00+02:00"),
    ),
    **dict.fromkeys(("float_type", "float_parsing"), Text("it must be a number")),
}


def problem_of(detail: Mapping[str, Any]) -> str:
    """Return what is wrong with one member; of our own rules their words alone."""
    words = _WORDS.get(str(detail["type"]))
    if words is not None:
        return words if isinstance(words, Text) else words(detail.get("ctx", {}))
    # pydantic keeps the error that a rule of ours raised, and makes plain text of what it says.
    raised = getattr(detail.get("ctx", {}).get("error"), "args", ())
    if raised and isinstance(raised[0], Text):
        return raised[0]
    return str(detail["msg"]).removeprefix("Value error, ").removesuffix(".")


def sentence(where: str, problem: str) -> Text:
    """Return what is wrong where, as a sentence."""
    if problem.endswith("."):
        return Text("{where}: {problem}", where=where, problem=problem)
    return Text("{where}: {problem}.", where=where, problem=problem)


def meant(detail: Mapping[str, Any], reader: TypeAdapter[Any]) -> str:
    """Return the question whether another member was meant, ``""`` where none is near."""
    name = near(detail, reader)
    return Text("Did you mean '{name}'?", name=name) if name else ""


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
