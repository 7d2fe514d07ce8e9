"""The policy document: YAML in, ``PolicyDocument`` or findings with line numbers out.

Every key is optional but ``pools`` and ``classes``::

    default_class: t4
    pools:
      cards: {evidence: process, spare: 0, elastic: {max: 16, ...}}  # elastic_section
      shared: {evidence: cells, parts: 10}                           # parts_section
    classes:
      t4: {pool: cards, title: NVIDIA T4, memory: 16GiB, max_count: 1, price: 1, time_outs: {...},
           fallback: [slice], pod: {kind: device_plugin, ...},  # pod_section
           warm: {pods: 2, ...}}  # warm_section
    time_outs: {idle: 5m, quiet: 15m, warning: 60s}
    limits: {leases_per_server: 1, leases_per_user: 2, queue_max: 1000, waiting_per_user: 4,
             changes_per_minute: 120, runs_per_user: 2, batch_wait: 4h, batch_cell: 15m,
             gang_hold_max: 8h}
    click_runs_cells: auto
    reservations: {gpu_hours: 1000, lead: 2m, ...}  # reservation_section
    shares: {half_life: 7d, strength: 1}            # projects_section
    projects: {physics: {pools: {cards: {guarantee: 4}}, ...}}
    drained_nodes: [gpu-3]

A class's ``time_outs`` override the document's one by one.  Text and version are passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache, lru_cache
from typing import Annotated, Any, get_type_hints

import yaml

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.reservation import ReservationTerms
from gpulease.policy.catalog import BOUNDED_BY
from gpulease.policy.document import fitting
from gpulease.policy.document.fitting import of_time_outs
from gpulease.policy.document.source import (
    Finding,
    Model,
    Problem,
    Source,
    compose,
    unknown,
    without_hidden,
)
from gpulease.policy.forms import Duration, Line, Lines, Section, named
from gpulease.policy.model import Device, GPUClass, Limits, PolicyDocument, Pool, TimeOuts
from gpulease.policy.pods import HAMI_SPLIT, AskKind, PodAsk, ask_for, is_hami
from gpulease.policy.projects import Project, Projects, Shares
from gpulease.policy.states import ClickRuns, EvidenceLevel
from gpulease.texts import Said, Text

TIME_OUT_NAMES = tuple(each.name for each in fields(TimeOuts))
#: What a form offers of a number; a document may say more.
MOST_COUNTED = 1000


@dataclass(frozen=True)
class Document(Section):
    """The policy as a document: ``PolicyDocument``, section by section."""

    pools: Annotated[tuple[Pool, ...], named(Pool, True), Said("Groups of alike devices.")]
    classes: Annotated[tuple[GPUClass, ...], named(GPUClass, True), Said("What people ask for.")]
    default_class: Annotated[
        Line, Said("The class for requests that name none; the first if empty.")
    ] = ""
    time_outs: Annotated[TimeOuts, Said("When a GPU is released.")] = field(
        default_factory=TimeOuts
    )
    limits: Annotated[Limits, Said("How much one may have or ask.")] = field(default_factory=Limits)
    click_runs_cells: Annotated[
        ClickRuns, Said("Which cells run on a GPU that was asked for by a click.")
    ] = ClickRuns.AUTO
    reservations: Annotated[ReservationTerms, Said("What groups may reserve.")] = field(
        default_factory=ReservationTerms
    )
    shares: Annotated[Shares, Said("How past use counts.")] = field(default_factory=Shares)
    projects: Annotated[
        tuple[Project, ...], named(Project), Said("Who shares the GPUs, and how.")
    ] = ()
    drained_nodes: Annotated[
        Lines, Said("Nodes that take nothing new and whose leases are warned and drained.")
    ] = ()


@cache
def _model() -> Model[Document]:
    return Model(Document, "the policy")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12): what an editor completes, and tools check against.

    It says what may stand where, in which form; what must fit together only ``check`` can say.
    """
    schema = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": schema, "title": "Policy", **_model().schema}


def check(text: str) -> list[Finding]:
    """Return everything that is wrong with the document or worth a caution, by line."""
    return list(_read(text)[1])


def parse(text: str, version: int = 0) -> PolicyDocument:
    """Return the validated document.

    Raises:
        GPULeaseError: ``bad_policy`` (status 422); ``numbers["findings"]`` lists line, column,
            message and next step of each finding.
    """
    document, found = _read(text)
    findings = [finding for finding in found if finding.level == "error"]
    if findings or document is None:
        first = findings[0]
        raise GPULeaseError(
            "bad_policy",
            Text("Line {line}: {message}", line=first.line, message=first.message)
            if len(findings) == 1
            else Text(
                "Line {line}: {message} (and {more} more)",
                line=first.line,
                message=first.message,
                more=len(findings) - 1,
            ),
            next_step=first.next_step,
            numbers={"findings": [finding.to_json() for finding in findings]},
            status=422,
        )
    return replace(document, version=version)


@lru_cache(maxsize=4)  # a text is read to check it, before it is saved, and when it is taken
def _read(text: str) -> tuple[PolicyDocument | None, tuple[Finding, ...]]:
    source = compose(text, Text("Begin with the keys pools and classes."))
    if isinstance(source, Finding):
        return None, (source,)
    shape = _model().read(source, _inherited(source.tree))
    document = None
    if shape is not None:
        pools = {each.name: each for each in shape.pools}
        classes = tuple(_filled(each, pools.get(each.pool), source) for each in shape.classes)
        document = _document(shape, classes)
        source.problems += _problems(document, shape, source)
    found = {source.finding(each) for each in source.problems}
    return document, tuple(sorted(found, key=lambda each: (each.line, each.column, each.message)))


def _inherited(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the tree with what classes have of the document's time-outs, and people of members."""
    outs = tree.get("time_outs")
    if isinstance(outs, dict):
        each_class = _entries(tree, "classes", "time_outs", outs)
        tree = {**tree, "classes": each_class}
    projects = tree.get("projects")
    if isinstance(projects, dict):
        tree = {**tree, "projects": {name: _people(each) for name, each in projects.items()}}
    return tree


def _entries(tree: dict[str, Any], section: str, key: str, base: dict[str, Any]) -> Any:
    entries = tree.get(section)
    if not isinstance(entries, dict):
        return entries
    return {name: _below(each, key, base) for name, each in entries.items()}


def _below(entry: Any, key: str, base: dict[str, Any]) -> Any:
    """Return an entry with ``base`` under what it says itself in one of its sections."""
    if not isinstance(entry, dict):
        return entry if isinstance(entry, str | list) else {key: base}
    own = entry.get(key, {})
    return {**entry, key: {**base, **own}} if isinstance(own, dict) else entry


def _people(project: Any) -> Any:
    members = project.get("members") if isinstance(project, dict) else None
    people = project.get("people") if isinstance(project, dict) else None
    if not isinstance(members, dict) or not isinstance(people, dict):
        return project
    found = {
        name: {**members, **own} if isinstance(own, dict) else own for name, own in people.items()
    }
    return {**project, "people": found}


def _filled(own: GPUClass, pool: Pool | None, source: Source) -> GPUClass:
    """Return a class with what follows from its pool, and from its name."""
    title = own.title or own.name
    if pool is None or not pool.parts:
        return replace(own, title=title, parts=0, steps=())
    ask, parts = own.pod, own.parts or pool.parts
    counted = ("classes", own.name, "pod", "slot_units") in source
    if ask is not None and is_hami(ask) and not counted and not HAMI_SPLIT % pool.parts:
        ask = replace(ask, slot_units=HAMI_SPLIT // pool.parts)
    steps = tuple(sorted(set(own.steps), reverse=True))
    return replace(own, title=title, pod=ask, parts=parts, card_parts=pool.parts, steps=steps)


def _document(shape: Document, classes: tuple[GPUClass, ...]) -> PolicyDocument:
    parents = {each.parent for each in shape.projects}
    projects = tuple(
        replace(
            each,
            group="" if each.everyone or each.name in parents else each.group or each.name,
        )
        for each in shape.projects
    )
    return PolicyDocument(
        version=0,
        pools=shape.pools,
        classes=classes,
        default_class=shape.default_class or next((each.name for each in classes), ""),
        time_outs=shape.time_outs,
        click_runs_cells=shape.click_runs_cells,
        reservations=shape.reservations,
        projects=Projects(projects, **vars(shape.shares)),
        drained_nodes=shape.drained_nodes,
        **vars(shape.limits),
    )


def _problems(document: PolicyDocument, shape: Document, source: Source) -> Iterator[Problem]:
    """Yield what does not fit together in what was read."""
    pools = {each.name: each for each in document.pools}
    classes = [each.name for each in document.classes]
    yield from of_time_outs(document.time_outs, source, ("time_outs",))
    yield from fitting.pools(document.pools, document.classes)
    for each in shape.classes:
        yield from fitting.gpu_class(each, pools.get(each.pool), list(pools), source)
    yield from fitting.classes_together(document.classes)
    yield from fitting.reservations(document.reservations, classes, source)
    written = Projects(shape.projects)
    yield from fitting.projects(written, list(pools), classes, source)
    if document.default_class not in classes:
        wrong = unknown(document.default_class, classes)
        message = Text("{key}: {wrong}", key="default_class", wrong=wrong.message)
        yield Problem(("default_class",), message, wrong.next_step, of_value=True)


def shape_of(document: PolicyDocument) -> Document:
    """Return a policy as its document says it."""
    limits, shares = (
        {each.name: getattr(value, each.name) for each in fields(kind)}
        for kind, value in ((Limits, document), (Shares, document.projects))
    )
    own = {
        each.name: getattr(document, each.name) for each in fields(Document)
        if each.name not in ("limits", "shares", "projects")
    }  # fmt: skip
    return Document(
        **own, limits=Limits(**limits), shares=Shares(**shares), projects=document.projects.all
    )


def tree_of(document: PolicyDocument, *, brief: bool = False) -> dict[str, Any]:
    """Return a policy as the values of its document; ``brief`` is without what is by default."""
    found = _model().adapter.dump_python(
        shape_of(document), mode="json", by_alias=True, exclude_defaults=brief
    )
    return dict(without_hidden(found))


def dump(document: PolicyDocument) -> str:
    """Return the document as YAML that ``parse`` reads back to an equal document."""
    whole, tree = tree_of(document), tree_of(document, brief=True)
    written = ("default_class", "pools", "classes", "time_outs", "limits", "click_runs_cells")
    tree = dict.fromkeys(written) | tree
    tree |= {key: whole[key] for key in written if key in _WHOLE or tree[key] is None}
    for name, pool in tree["pools"].items():
        tree["pools"][name] = {"evidence": whole["pools"][name]["evidence"], **pool}
    for name, own in tree["classes"].items():
        outs = whole["classes"][name]["time_outs"]
        own.pop("time_outs", None)
        changed = {key: each for key, each in outs.items() if each != whole["time_outs"][key]}
        own.update({"time_outs": changed} if changed else {})
    for name, project in tree.get("projects", {}).items():
        if "people" in project:
            project["people"] = whole["projects"][name]["people"]
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


#: Sections that are written out with every default: admins see what they can change.
_WHOLE = ("time_outs", "limits")


@dataclass(frozen=True)
class TimeOutField:
    """What a form says beside one time-out; durations in seconds."""

    name: str
    counted: bool  # a number, not a duration
    default: float
    least: float
    most: float
    why: str  # the reason for ``most``; "" where there is none
    below: str  # the time-out that it is never longer than; "" where there is none


def form() -> tuple[TimeOutField, ...]:
    """Return the fields of a form of time-outs, in the order of the document."""
    hints, defaults = get_type_hints(TimeOuts, include_extras=True), TimeOuts()
    found = []
    for name in TIME_OUT_NAMES:
        bound, *_ = hints[name].__metadata__
        default = getattr(defaults, name)
        if isinstance(bound, Duration):
            least = 1 if bound.least else 0
            below = BOUNDED_BY.get(name, "")
            found.append(TimeOutField(name, False, default, least, bound.most, bound.why, below))
        else:
            found.append(TimeOutField(name, True, default, 0, MOST_COUNTED, "", ""))
    return tuple(found)


def default_document(
    devices: Iterable[Device], time_outs: TimeOuts | None = None, version: int = 1
) -> PolicyDocument:
    """Return the document of a site that has written none: a class for each pool found.

    Without devices there is one empty pool, so that the service starts and can say so.
    """
    outs = time_outs or TimeOuts()
    outs = replace(outs, idle_under_pressure=min(outs.idle, outs.idle_under_pressure))
    found: dict[str, Device] = {}
    for device in sorted(devices, key=lambda d: d.uuid):
        found.setdefault(device.pool, device)
    found = found or {"gpu": Device("", "gpu")}
    asks = {pool: _default_ask(device) for pool, device in found.items()}
    classes = tuple(
        GPUClass(pool, pool, device.name or pool, device.memory, time_outs=outs, pod=asks[pool])
        for pool, device in found.items()
    )
    pools = tuple(Pool(name, _default_level(ask)) for name, ask in asks.items())
    return PolicyDocument(version, pools, classes, classes[0].name, outs)


def _default_ask(device: Device) -> PodAsk | None:
    """Return how a cluster is asked for such a device; its name is NODE/RESOURCE/NUMBER."""
    if not device.node:
        return None
    resource = device.uuid.removeprefix(f"{device.node}/").rpartition("/")[0]
    return ask_for(resource, device.name)


def _default_level(ask: PodAsk | None) -> EvidenceLevel:
    """Return the evidence that is certain: of shares and slices the driver says too little."""
    told_apart = ask is None or ask.kind is AskKind.DEVICE_PLUGIN
    return EvidenceLevel.PROCESS if told_apart else EvidenceLevel.CELLS


def with_time_outs(document: PolicyDocument, **changed: float) -> PolicyDocument:
    """Return the document with some time-outs changed, for classes that do not override them."""
    outs = replace(document.time_outs, **changed)  # type: ignore[arg-type]
    classes = []
    for gpu_class in document.classes:
        own = {
            name: getattr(gpu_class.time_outs, name)
            for name in TIME_OUT_NAMES
            if getattr(gpu_class.time_outs, name) != getattr(document.time_outs, name)
        }
        classes.append(replace(gpu_class, time_outs=replace(outs, **own)))
    return replace(document, time_outs=outs, classes=tuple(classes))
