"""The section ``reservations`` of the policy document: its form, both ways.

Every key is optional::

    reservations:
      gpu_hours: 1000      # of a group, ahead of it
      windows: 100
      advance: 180d
      lead: 2m
      grace: 10m
      idle: {least: 1m, most: 1h}
      classes: [t4]
      closures:
        christmas: {from: 2026-12-24, to: 2027-01-06, title: Christmas break}
      groups:
        cs101: {classes: [t4], gpu_hours: 500, managers: [tom], image: registry/cs101:2026}
"""

from __future__ import annotations

from datetime import date
from typing import Any, Final

from gpulease.policy.calendar import Closure
from gpulease.policy.calendar.reservation import GroupTerms, ReservationTerms
from gpulease.policy.document.nodes import Reader
from gpulease.policy.document.pod_section import read_image
from gpulease.policy.units import format_duration
from gpulease.texts import Text

SECTION: Final = (
    "gpu_hours", "windows", "advance", "longest", "lead", "grace", "extension", "extra_time",
    "idle", "classes", "closures", "groups",
)  # fmt: skip
GROUP: Final = ("classes", "gpu_hours", "windows", "advance", "managers", "image")
_CLOSURE = ("from", "to", "title")
_DURATIONS = ("advance", "longest", "lead", "grace", "extension", "extra_time")


def read_terms(top: Reader, classes: tuple[str, ...]) -> ReservationTerms:
    """Return the terms of the document; what is wrong is noted with its line."""
    section = top.section("reservations", SECTION)
    base = ReservationTerms()
    idle = section.section("idle", ("least", "most"), "reservations.idle")
    least = idle.duration("least", base.idle_least, least=1e-3)
    most = idle.duration("most", base.idle_most, least=1e-3)
    if most < least:
        idle.wrong(
            "most",
            Text("The longest idle time-out is shorter than the shortest."),
            Text("Swap them."),
        )
    durations = {name: section.duration(name, getattr(base, name), least=0) for name in _DURATIONS}
    return ReservationTerms(
        gpu_hours=section.number("gpu_hours", base.gpu_hours),
        windows=section.whole("windows", base.windows, least=0),
        **durations,
        idle_least=least,
        idle_most=most,
        classes=_classes(section, classes),
        closures=_closures(section),
        groups=_groups(section, classes),
    )


def _classes(reader: Reader, classes: tuple[str, ...]) -> tuple[str, ...]:
    def known(name: str) -> str:
        if name not in classes:
            raise ValueError(Text("there is no class '{name}'.", name=name))
        return name

    return reader.texts("classes", known)


def _closures(section: Reader) -> tuple[Closure, ...]:
    found = []
    entries = section.section("closures", None)
    for name in entries.names:
        reader = entries.section(name, _CLOSURE, what=f"closures.{name}")
        first, last = _date(reader, "from"), _date(reader, "to")
        if first is None or last is None:
            continue
        if last < first:
            reader.wrong(
                "to", Text("This closure ends before it begins."), Text("Swap the two dates.")
            )
        found.append(Closure(first, last, reader.text("title", name)))
    return tuple(found)


def _date(reader: Reader, key: str) -> date | None:
    text = reader.text(key, "")
    try:
        return date.fromisoformat(text)
    except ValueError:
        step = Text("Write `{key}: 2026-12-24`.", key=key)
        reader.wrong(key, Text("{key} needs a date.", key=key), step)
        return None


def _groups(section: Reader, classes: tuple[str, ...]) -> tuple[tuple[str, GroupTerms], ...]:
    found = []
    entries = section.section("groups", None)
    for name in entries.names:
        reader = entries.section(name, GROUP, what=f"groups.{name}")
        given = reader.names
        found.append(
            (
                name,
                GroupTerms(
                    classes=_classes(reader, classes) if "classes" in given else None,
                    gpu_hours=reader.number("gpu_hours", 0.0) if "gpu_hours" in given else None,
                    windows=reader.whole("windows", 0, least=0) if "windows" in given else None,
                    advance=(
                        reader.duration("advance", 0.0, least=0) if "advance" in given else None
                    ),
                    managers=reader.texts("managers"),
                    image=read_image(reader),
                ),
            )
        )
    return tuple(found)


def terms_tree(terms: ReservationTerms) -> dict[str, Any]:
    """Return what is not as it is by default, as ``read_terms`` reads it back."""
    base = ReservationTerms()
    tree: dict[str, Any] = {
        name: getattr(terms, name)
        for name in ("gpu_hours", "windows")
        if getattr(terms, name) != getattr(base, name)
    }
    tree |= {
        name: format_duration(getattr(terms, name))
        for name in _DURATIONS
        if getattr(terms, name) != getattr(base, name)
    }
    if (terms.idle_least, terms.idle_most) != (base.idle_least, base.idle_most):
        least, most = format_duration(terms.idle_least), format_duration(terms.idle_most)
        tree["idle"] = {"least": least, "most": most}
    if terms.classes:
        tree["classes"] = list(terms.classes)
    if terms.closures:
        # Titles may be alike, the keys of a mapping may not.
        tree["closures"] = {
            f"closure-{n}": {
                "from": each.first.isoformat(),
                "to": each.last.isoformat(),
                "title": each.title,
            }
            for n, each in enumerate(terms.closures, 1)
        }
    if terms.groups:
        tree["groups"] = {name: _group_tree(each) for name, each in terms.groups}
    return tree


def _group_tree(terms: GroupTerms) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    if terms.classes is not None:
        tree["classes"] = list(terms.classes)
    if terms.gpu_hours is not None:
        tree["gpu_hours"] = terms.gpu_hours
    if terms.windows is not None:
        tree["windows"] = terms.windows
    if terms.advance is not None:
        tree["advance"] = format_duration(terms.advance)
    if terms.managers:
        tree["managers"] = list(terms.managers)
    if terms.image:
        tree["image"] = terms.image
    return tree
