"""Sets single values in a policy's text and leaves the rest as it was written, comments too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

_SECTION = "time_outs"


def with_time_outs(text: str, values: Mapping[str, str]) -> str:
    """Return the document's text with these time-outs set.

    Args:
        text: a valid policy document.
        values: by name, as they are written: ``{"idle": "5m", "keeps": "3"}``.
    """
    for name, value in values.items():
        text = _with_one(text, (_SECTION, name), value)
    return text


def with_paused(text: str, pools: Iterable[str], paused: bool) -> str:
    """Return the document's text with these pools, which it names, paused or not."""
    for pool in pools:
        text = _with_one(text, ("pools", pool, "paused"), str(paused).lower())
    return text


def with_drained(text: str, nodes: Iterable[str]) -> str:
    """Return the document's text with these nodes drained and no others."""
    names = ", ".join(json.dumps(each) for each in nodes)
    return _with_one(text, ("drained_nodes",), f"[{names}]")


def _with_one(text: str, path: Sequence[str], value: str) -> str:
    """Set the value at a path; sections that are not there are made."""
    node: Node | None = yaml.compose(text, yaml.SafeLoader)
    for place, name in enumerate(path):
        assert isinstance(node, MappingNode), "the document is valid"
        found = _value_of(node, name)
        inner = value
        for rest in reversed(path[place + 1 :]):
            inner = f"{{{rest}: {inner}}}"
        if found is None:
            return _inserted(text, node, f"{name}: {inner}")
        if place == len(path) - 1:
            return _replaced(text, found, value)
        if not isinstance(found, MappingNode):  # a section's name and nothing after it
            return _replaced(text, found, f" {inner}")
        node = found
    return text


def _value_of(mapping: MappingNode, name: str) -> Node | None:
    found = (v for k, v in mapping.value if isinstance(k, ScalarNode) and k.value == name)
    return next(found, None)


def _replaced(text: str, node: Node, value: str) -> str:
    if isinstance(node, SequenceNode) and not node.flow_style:  # it ends where the next line begins
        value = f"  {value}\n"
    return text[: node.start_mark.index] + value + text[node.end_mark.index :]


def _inserted(text: str, mapping: MappingNode, line: str) -> str:
    """Put a pair before the first one of a mapping, in the mapping's own style."""
    if mapping.flow_style:
        at = mapping.start_mark.index + 1
        return f"{text[:at]}{line}{', ' if mapping.value else ''}{text[at:]}"
    first = mapping.value[0][0].start_mark
    return f"{text[: first.index]}{line}\n{' ' * first.column}{text[first.index :]}"
