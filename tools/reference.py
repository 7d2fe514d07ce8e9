"""Write the tables of docs/reference from the code: ``make reference``.

A page holds a table between two marks, which neither Markdown renderer shows::

    [//]: # "generated: metrics service"

    | ... |

    [//]: # "end"

The mark names a function of ``MAKERS`` and what it is given.  Everything outside of the marks is
written by hand.  ``tests/project/test_reference.py`` fails where a page is not what this writes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter
from traitlets import Undefined
from traitlets.config import Configurable

from gpulease.cli import command_line
from gpulease.gpus.agent.run import Metrics as AgentMetrics
from gpulease.policy import document
from gpulease.policy.lifecycle import TRANSITIONS
from gpulease.protocol.asks import AskBody
from gpulease.service.metrics import Metrics
from gpulease.service.routes import OPERATIONS
from gpulease.service.schemas.bodies import SubmitBody
from gpulease.service.schemas.reservation_bodies import ReservationBody
from gpulease.service.settings.application import GPULeaseService
from gpulease.service.settings.options import KubernetesSettings

ROOT: Final = Path(__file__).parents[1]
BLOCK: Final = re.compile(
    r'(?<=^\[//\]: # "generated: )([\w /*-]+)"\n(.*?)\n(?=\[//\]: # "end"$)',
    re.DOTALL | re.MULTILINE,
)
_PAGED: Final = ("offset", "limit")  # said once for all lists


def main() -> int:
    """Rewrite every page, and say how many words of the documentation are written by hand."""
    for page in pages():
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
    words = sum(len(prose(each.read_text(encoding="utf-8")).split()) for each in pages())
    print(f"{words} words beside the generated tables")
    return 0


def pages() -> list[Path]:
    """Return every page of the documentation."""
    return sorted((ROOT / "docs").rglob("*.md"))


def written(text: str) -> str:
    """Return a page with its tables as the code has them now."""
    return BLOCK.sub(lambda found: f'{found[1]}"\n\n{_made(found[1])}\n\n', text)


def prose(text: str) -> str:
    """Return what of a page is written by hand."""
    return BLOCK.sub("", text)


def _made(what: str) -> str:
    name, _, rest = what.partition(" ")
    return "\n".join(MAKERS[name](rest)).strip()


def _table(head: str, rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield a table's lines; columns in which no row has anything are left out."""
    cells = [[each.replace("|", r"\|").replace("\n", " ") for each in row] for row in rows]
    kept = [n for n in range(len(head.split("|"))) if any(row[n] for row in cells)]
    heads = [head.split("|")[n].strip() for n in kept]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(kept)}"
    for row in cells:
        yield f"| {' | '.join(row[n] for n in kept)} |"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _value(value: Any) -> str:
    """Return a default as it stands in a table; "" for what is none."""
    if value is None or value is Undefined or value in ("", [], {}, ()) or value is False:
        return ""
    return _code(f"{value:g}" if isinstance(value, float) else str(value))


def _command_line(_: str) -> Iterator[str]:
    """Yield every command with its options, as the parsers describe them."""
    for name, parser in _children(command_line()).items():
        yield from (f"## `gpulease {name}`", "", parser.description or "", "")
        children = _children(parser)
        if children:
            rows = (_command(name, each, child) for each, child in children.items())
            yield from (*_table("Command | Arguments | Does", rows), "")
        if own := [_option(each) for each in _arguments(parser) if not _is_parent(each)]:
            yield from (*_table("Option | Default | Meaning", own), "")


def _command(name: str, action: str, parser: argparse.ArgumentParser) -> list[str]:
    said = [f"{option}: {words}" for option, _, words in map(_option, _arguments(parser))]
    return [_code(f"{name} {action}"), "; ".join(said), parser.description or ""]


def _option(action: argparse.Action) -> list[str]:
    shown = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    if action.choices and not action.metavar:
        shown = "{" + ",".join(map(str, action.choices)) + "}"
    names = ", ".join(action.option_strings)
    words = (action.help or "") % {**vars(action), "prog": "gpulease"}
    return [_code(f"{names} {shown}".strip()), _value(action.default), words]


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return a parser's arguments, which argparse shows to the formatter of its help alone."""
    found: list[argparse.Action] = []

    class Noting(argparse.HelpFormatter):
        def add_arguments(self, actions: Iterable[argparse.Action]) -> None:
            found.extend(actions)

    parser.formatter_class = Noting
    parser.format_help()
    return [each for each in found if each.help != argparse.SUPPRESS and each.dest != "help"]


def _is_parent(action: argparse.Action) -> bool:
    return isinstance(action.choices, Mapping)


def _children(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in _arguments(parser):
        if isinstance(action.choices, Mapping):
            return action.choices
    return {}


def _settings(which: str) -> Iterator[str]:
    """Yield the settings of the service (``service``) or of its use of a cluster."""
    found: type[Configurable] = GPULeaseService if which == "service" else KubernetesSettings
    options = {setting: option for option, setting in GPULeaseService().aliases.items()}
    options["GPULeaseService.simulate"] = "simulate"  # a flag
    rows = []
    for name, trait in found.class_own_traits(config=True).items():
        option = options.get(f"{found.__name__}.{name}", "")
        rows.append(
            [
                _code(name),
                _code(f"--{option}" if option else ""),
                _value(trait.default_value),
                trait.help,
            ]
        )
    return _table("Setting | Option | Default | Meaning", rows)


def _rest(which: str) -> Iterator[str]:
    """Yield the operations of the API, or the members of a body."""
    if which:
        return _members(_BODIES[which])
    rows = []
    for each in OPERATIONS:
        query = each.described.query
        names = query.model_json_schema()["properties"] if query is not None else {}
        rows.append(
            [
                _code(f"{each.method.upper()} {each.path}"),
                " or ".join(_code(scope) if ":" in scope else scope for scope in each.scopes),
                ", ".join(_code(name) for name in names if name not in _PAGED),
                each.summary.replace("``", "`"),
            ]
        )
    return _table("Operation | Needs | Query | Does", rows)


_BODIES: Final[Mapping[str, Any]] = {
    "ask": AskBody,
    "reservation": ReservationBody,
    "run": SubmitBody,
}


def _members(body: Any) -> Iterator[str]:
    schema = TypeAdapter(body).json_schema()
    required = schema.get("required", ())
    rows = []
    for name, each in schema["properties"].items():
        default = "required" if name in required else _value(each.get("default"))
        rows.append([_code(name), default, each.get("description", "")])
    return _table("Member | Default | Meaning", rows)


def _policy(path: str) -> Iterator[str]:
    """Yield the keys below a path of the policy document, those of nested sections with a dot."""
    schema = document.json_schema()
    for key in path.split():
        schema = schema["additionalProperties"] if key == "*" else schema["properties"][key]
    return _table("Key | Default | Meaning", _keys(schema, "", top=not path))


def _keys(schema: Mapping[str, Any], prefix: str, *, top: bool = False) -> Iterator[list[str]]:
    required = schema.get("required", ())
    for name, each in schema["properties"].items():
        section = _section(each)
        default = "" if section is not None else _value(each.get("default"))
        key = f"{prefix}{name}"
        said = each.get("description", "").removesuffix(f" Default {each.get('default')}.")
        if options := [str(option) for option in each.get("enum", ()) if option]:
            said = f"{said} One of {', '.join(map(_code, options))}."
        yield [_code(key), "required" if name in required else default, said]
        if section is not None and not top and name not in _OWN_TABLES:
            yield from _keys(section, f"{key}.")


#: Sections that have a table of their own wherever they stand.
_OWN_TABLES: Final = ("pod", "budget", "time_outs")


def _section(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schema of a section, of one by name that of its values; None for a value."""
    if isinstance(schema.get("additionalProperties"), Mapping):
        return _section(schema["additionalProperties"])
    return schema if "properties" in schema else None


def _metrics(which: str) -> Iterator[str]:
    metrics = Metrics() if which == "service" else AgentMetrics("node")
    rows = []
    for each in metrics.registry.collect():
        name = f"{each.name}_total" if each.type == "counter" else each.name
        if name in metrics.labels:
            labels = ", ".join(map(_code, metrics.labels[name]))
            rows.append([_code(name), each.type, labels, each.documentation])
    return _table("Metric | Type | Labels | Meaning", rows)


def _states(_: str) -> Iterator[str]:
    rows = (
        [
            _code(each.source.value),
            _code(each.target.value),
            " ".join(_code(reason) for reason in sorted(each.reasons) if reason),
        ]
        for each in TRANSITIONS
    )
    return _table("From | To | Reason codes", rows)


MAKERS: Final[Mapping[str, Callable[[str], Iterator[str]]]] = {
    "commands": _command_line,
    "settings": _settings,
    "rest": _rest,
    "policy": _policy,
    "metrics": _metrics,
    "states": _states,
}

if __name__ == "__main__":
    sys.exit(main())
