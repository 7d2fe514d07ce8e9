"""Sets time-outs in a policy's text and leaves everything else as it was written, comments too."""

from __future__ import annotations

from collections.abc import Mapping

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

_SECTION = "time_outs"


def with_time_outs(text: str, values: Mapping[str, str]) -> str:
    """Return the document's text with these time-outs set.

    Args:
        text: a valid policy document.
        values: by name, as they are written: ``{"idle": "5m", "keeps": "3"}``.
    """
    for name, value in values.items():
        text = _with_one(text, name, value)
    return text


def _with_one(text: str, name: str, value: str) -> str:
    root = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(root, MappingNode), "the document is valid"
    section = _value_of(root, _SECTION)
    if section is None:
        return _inserted(text, root, f"{_SECTION}: {{{name}: {value}}}")
    if not isinstance(section, MappingNode):  # `time_outs:` and nothing after it
        return _replaced(text, section, f" {{{name}: {value}}}")
    known = _value_of(section, name)
    if known is not None:
        return _replaced(text, known, value)
    return _inserted(text, section, f"{name}: {value}")


def _value_of(mapping: MappingNode, name: str) -> Node | None:
    found = (v for k, v in mapping.value if isinstance(k, ScalarNode) and k.value == name)
    return next(found, None)


def _replaced(text: str, node: Node, value: str) -> str:
    return text[: node.start_mark.index] + value + text[node.end_mark.index :]


def _inserted(text: str, mapping: MappingNode, line: str) -> str:
    """Put a pair before the first one of a mapping, in the mapping's own style."""
    if mapping.flow_style:
        at = mapping.start_mark.index + 1
        return f"{text[:at]}{line}{', ' if mapping.value else ''}{text[at:]}"
    first = mapping.value[0][0].start_mark
    return f"{text[: first.index]}{line}\n{' ' * first.column}{text[first.index :]}"
