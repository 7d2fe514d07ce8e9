"""What stands in a pod's spec, in the words of ``guard_list``; and which of it is not on the list.

Pure; it reads values of any shape, and raises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpulease.hub import gpu_names, guard_list
from gpulease.hub.guard_list import (
    BLOCKER,
    BLOCKER_CAPABILITY,
    BLOCKER_COMMAND,
    BLOCKER_IMAGE,
    BLOCKER_MOUNT,
    BLOCKER_WITHOUT,
    CONTAINERS,
    ROWS,
    VOLUMES_BY,
    Form,
    Row,
    allows,
)
from gpulease.hub.guard_shape import Path, items, mapping, text

Written = Iterator[tuple[Path, tuple[str, ...]]]


@dataclass(frozen=True)
class Entry:
    """Something in a pod's spec as the list would name it; one of ``ways`` on it is enough."""

    path: Path
    ways: tuple[str, ...]


def unlisted(
    spec: Mapping[str, Any], allow: tuple[str, ...] = (), blocker_image: str = BLOCKER_IMAGE
) -> Iterator[Entry]:
    """Yield what stands in a pod's spec and not on the list."""
    for line in lines(spec, blocker_image):
        if not any(guard_list.is_listed(way) or allows(allow, way) for way in line.ways):
            yield line


def lines(spec: Mapping[str, Any], blocker_image: str = BLOCKER_IMAGE) -> Iterator[Entry]:
    """Yield everything in a pod's spec that the list has words for."""
    for row in ROWS:
        for path, value in _at(spec, row, blocker_image):
            for part, ways in _FORMS[row.form](row, value):
                yield Entry((*path, *part), (*_of_one_container(spec, row, path, ways), *ways))


def _of_one_container(
    spec: Mapping[str, Any], row: Row, path: Path, ways: tuple[str, ...]
) -> Iterator[str]:
    """Yield the line of a capability that one init container has, and no other container."""
    if row.kind == "capability" and path[1] == "initContainers":
        name = text(items(spec["initContainers"])[int(path[2])].get("name"))
        yield from (f"{way} in {name}" for way in ways)


def _at(spec: Mapping[str, Any], row: Row, image: str) -> Iterator[tuple[Path, Any]]:
    if not row.at.startswith("*."):
        yield from _walk(("spec",), spec, row.at.split("."))
        return
    for kind in CONTAINERS:
        for index, container in enumerate(items(spec.get(kind))):
            spared = row.kind in {"privilege", "capability"} and kind == "initContainers"
            if not (spared and is_blocker(container, image)):
                yield from _walk(("spec", kind, index), container, row.at[2:].split("."))


def _walk(path: Path, value: Any, names: Sequence[str]) -> Iterator[tuple[Path, Any]]:
    if not names:
        yield path, value
        return
    name = names[0].removesuffix("[]")
    inner = mapping(value).get(name)
    if inner is None:
        return
    if not names[0].endswith("[]"):
        yield from _walk((*path, name), inner, names[1:])
        return
    for index, item in enumerate(inner if isinstance(inner, list) else []):
        yield from _walk((*path, name, index), item, names[1:])


def _keys(row: Row, value: Any) -> Written:
    for key, quantity in mapping(value).items():
        if not gpu_names.is_zero(quantity):
            yield (key,), (f"{row.kind} {key}",)


def _pairs(row: Row, value: Any) -> Written:
    for key, other in mapping(value).items():
        if not gpu_names.says_none(key, text(other)):
            yield (key,), (f"{row.kind} {key}={text(other)}",)


def _value(row: Row, value: Any) -> Written:
    if text(value):
        yield (), (f"{row.kind} {text(value)}",)


def _switch(row: Row, value: Any) -> Written:
    if value is True:
        yield (), (f"{row.kind} {row.at.rsplit('.', 1)[-1]}",)


def _expression(row: Row, value: Any) -> Written:
    for line in _condition(mapping(value)):
        yield (), (f"{row.kind} {line}",)


def _toleration(row: Row, value: Any) -> Written:
    key, only = (text(mapping(value).get(name)) for name in ("key", "value"))
    yield (), (f"{row.kind} {key}{only and '='}{only}",)


def _term(row: Row, value: Any) -> Written:
    yield (), tuple(f"{row.kind} {each}".rstrip() for each in _chosen(mapping(value)))


#: How what stands at a row's place is written: the rest of its path, and the line or lines.
_FORMS: Final[Mapping[Form, Callable[[Row, Any], Written]]] = {
    "key": _keys,
    "pair": _pairs,
    "value": _value,
    "switch": _switch,
    "expression": _expression,
    "toleration": _toleration,
    "term": _term,
    "volume": lambda _row, value: (((), (line,)) for line in _volume(mapping(value))),
}


def _condition(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield where a condition on nodes leads to; away from what it names needs no line."""
    key, operator = text(given.get("key")), text(given.get("operator"))
    if operator in {"NotIn", "DoesNotExist"}:
        return
    values = given.get("values")
    sign = {"Gt": ">", "Lt": "<"}.get(operator, "=")
    if operator == "Exists" or not isinstance(values, list) or not values:
        yield key
        return
    for value in map(text, values):
        if sign != "=" or not gpu_names.says_none(key, value):
            yield f"{key}{sign}{value}"


def _chosen(term: Mapping[str, Any]) -> Sequence[str]:
    """Return by what a term chooses pods to be beside; each narrows it, so one listed will do."""
    selector = mapping(term.get("labelSelector"))
    found = [f"{k}={text(v)}" for k, v in mapping(selector.get("matchLabels")).items()]
    for given in items(selector.get("matchExpressions")):
        key, values = text(given.get("key")), given.get("values")
        if given.get("operator") == "In" and isinstance(values, list):
            found.append(f"{key}={','.join(map(text, values))}")
        elif given.get("operator") == "Exists":
            found.append(key)
    return found or [""]


def _volume(volume: Mapping[str, Any]) -> Iterator[str]:
    for kind, source in volume.items():
        if kind == "name" or source is None:
            continue
        if kind not in VOLUMES_BY:
            yield f"volume {kind}"
            continue
        named = text(mapping(source).get(VOLUMES_BY[kind]))
        yield f"{kind} {gpu_names.plain_path(named) if kind == 'hostPath' else named}"


def is_blocker(container: Mapping[str, Any], image: str = BLOCKER_IMAGE) -> bool:
    """Whether an init container is the chart's ``block-cloud-metadata`` and nothing else.

    ``image``: of the site's network tools (``*`` matches anything).
    """
    command = container.get("command")
    if container.get("name") != BLOCKER or not isinstance(command, list):
        return False
    if len(command) != len(BLOCKER_COMMAND) or any(
        wanted and wanted != given for wanted, given in zip(BLOCKER_COMMAND, command, strict=True)
    ):
        return False
    capabilities = mapping(mapping(container.get("securityContext")).get("capabilities"))
    added = capabilities.get("add")
    return (
        allows((image,), text(container.get("image")))
        and re.fullmatch(r"[0-9a-fA-F.:]+", text(command[6])) is not None
        and (not isinstance(added, list) or all(each == BLOCKER_CAPABILITY for each in added))
        and not any(container.get(each) for each in BLOCKER_WITHOUT)
        and all(
            text(each.get("name")).endswith("_VISIBLE_DEVICES") and not each.get("valueFrom")
            for each in items(container.get("env"))
        )
        and all(
            text(each.get("mountPath")) == BLOCKER_MOUNT
            for each in items(container.get("volumeMounts"))
        )
    )
