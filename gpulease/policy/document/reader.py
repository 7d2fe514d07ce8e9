"""The policy document: YAML in, ``PolicyDocument`` or findings with line numbers out.

Owns the document's form.  Every key is optional but ``pools`` and ``classes``::

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

A class's ``time_outs`` override the document's one by one.  Refuses to know files and versions:
text and number are passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import yaml

from gpulease.errors import GPULeaseError
from gpulease.policy.document.elastic_section import elastic_tree, read_elastic
from gpulease.policy.document.nodes import Finding, Reader, compose
from gpulease.policy.document.parts_section import (
    check_fallback,
    counted_in_parts,
    parts_tree,
    pool_parts_tree,
    read_parts,
    read_pool_parts,
)
from gpulease.policy.document.pod_section import KEYS, pod_tree, read_pod
from gpulease.policy.document.projects_section import projects_tree, read_projects
from gpulease.policy.document.reservation_section import read_terms, terms_tree
from gpulease.policy.document.time_outs_section import COUNTED, TIME_OUT_NAMES, read_time_outs
from gpulease.policy.document.warm_section import read_warm, warm_tree
from gpulease.policy.model import (
    Device,
    EvidenceLevel,
    GPUClass,
    PolicyDocument,
    Pool,
    TimeOuts,
)
from gpulease.policy.pods import AskKind, PodAsk, ask_for, resource_of, slot_units_of
from gpulease.policy.states import ClickRuns, DevicesBy
from gpulease.policy.units import format_duration, format_size
from gpulease.texts import Text

__all__ = ["Finding", "check", "default_document", "dump", "parse"]

TOP = (
    "default_class", "pools", "classes", "time_outs", "limits", "click_runs_cells",
    "reservations", "shares", "projects", "drained_nodes",
)  # fmt: skip
LIMITS = (
    "leases_per_server", "leases_per_user", "queue_max", "waiting_per_user", "changes_per_minute",
    "runs_per_user", "batch_wait", "batch_cell", "gang_hold_max", "share_harm",
)  # fmt: skip
POOL = ("evidence", "spare", "paused", "elastic", "parts")
CLASS = (
    "pool", "title", "memory", "max_count", "price", "time_outs", "fallback", "pod", "warm",
    "parts", "steps", "devices_by",
)  # fmt: skip


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
    findings: list[Finding] = []
    root = compose(text, findings)
    if root is None:
        return None, tuple(findings)
    top = Reader(root, findings, "the policy", TOP)
    outs = read_time_outs(top.section("time_outs", TIME_OUT_NAMES), TimeOuts())
    pool_entries = list(top.entries("pools", POOL))
    pools = tuple(_pool(name, reader) for name, reader in pool_entries)
    by_name = {pool.name: pool for pool in pools}
    entries = list(top.entries("classes", CLASS))
    classes = tuple(_gpu_class(name, reader, by_name, outs) for name, reader in entries)
    _fit_together(classes, [reader for _, reader in entries])
    queued = {each.pool for each in classes if each.queue is not None}
    for name, reader in pool_entries:
        if name in queued and "elastic" in reader.names:
            message = Text("Pool {pool} grows by the cluster's queue that admits to it.", pool=name)
            reader.wrong("elastic", message, Text("Remove `elastic` here or the classes' queue."))
    limits = top.section("limits", LIMITS)
    document = PolicyDocument(
        version=0,
        pools=pools,
        classes=classes,
        default_class=_default_class(top, classes),
        time_outs=outs,
        leases_per_server=limits.whole("leases_per_server", 1, least=1),
        leases_per_user=limits.whole("leases_per_user", 2, least=1),
        click_runs_cells=ClickRuns(top.choice("click_runs_cells", [*ClickRuns], ClickRuns.AUTO)),
        queue_max=limits.whole("queue_max", 1000, least=1),
        waiting_per_user=limits.whole("waiting_per_user", 4, least=1),
        changes_per_minute=limits.whole("changes_per_minute", 120, least=1),
        runs_per_user=limits.whole("runs_per_user", 2, least=1),
        batch_wait=limits.duration("batch_wait", 14400.0, least=0),
        batch_cell=limits.duration("batch_cell", 900.0, least=0),
        gang_hold_max=limits.duration("gang_hold_max", 28800.0, least=0),
        share_harm=limits.duration("share_harm", 60.0, least=0),
        reservations=read_terms(top, tuple(each.name for each in classes)),
        projects=read_projects(top, tuple(by_name), tuple(each.name for each in classes)),
        drained_nodes=top.texts("drained_nodes"),
    )
    return document, tuple(sorted(findings, key=lambda found: (found.line, found.column)))


def _pool(name: str, reader: Reader) -> Pool:
    level = reader.choice("evidence", tuple(EvidenceLevel), EvidenceLevel.PROCESS)
    spare, paused = reader.whole("spare", 0, least=0), reader.flag("paused", False)
    elastic, parts = read_elastic(reader), read_pool_parts(reader)
    return Pool(name, EvidenceLevel(level), spare, paused, elastic, parts)


def _gpu_class(name: str, reader: Reader, pools: Mapping[str, Pool], base: TimeOuts) -> GPUClass:
    pool = reader.choice("pool", tuple(pools), None)
    max_count = reader.whole("max_count", 1, least=1)
    ask = _pod(reader, max_count, pools.get(pool))
    parts = read_parts(reader, pools.get(pool), ask, max_count)
    ask = counted_in_parts(reader, pools.get(pool), ask)
    return GPUClass(
        name=name,
        pool=pool,
        title=reader.text("title", name),
        memory=reader.size("memory", 0),
        max_count=max_count,
        price=reader.number("price", 1.0),
        time_outs=read_time_outs(reader.section("time_outs", TIME_OUT_NAMES), base),
        fallback=reader.texts("fallback"),
        pod=ask,
        warm=read_warm(reader, ask),
        parts=parts.parts,
        card_parts=parts.card_parts,
        steps=parts.steps,
        devices_by=DevicesBy(reader.choice("devices_by", [*DevicesBy], DevicesBy.UUID)),
    )


def _pod(reader: Reader, max_count: int, pool: Pool | None) -> PodAsk | None:
    if "pod" not in reader.names:
        return None
    ask = read_pod(reader.section("pod", KEYS), max_count)
    if ask.kind is AskKind.EXTRA and pool is not None and pool.evidence is not EvidenceLevel.CELLS:
        reader.wrong(
            "pod",
            Text(
                "Use of such a share cannot be told apart: pool {pool} needs evidence level cells.",
                pool=pool.name,
            ),
            Text("Write `evidence: cells` at pool {pool}.", pool=pool.name),
        )
    return ask


def _fit_together(classes: tuple[GPUClass, ...], readers: list[Reader]) -> None:
    """Note what is wrong between classes: fallbacks that are none, pools counted in two ways."""
    names = {gpu_class.name for gpu_class in classes if gpu_class.queue is None}
    admits = {gpu_class.pool: gpu_class.queue is None for gpu_class in classes}
    counted: dict[str, tuple[str, int]] = {}
    by_name = {gpu_class.name: gpu_class for gpu_class in classes}
    for gpu_class, reader in zip(classes, readers, strict=True):
        check_fallback(gpu_class, by_name, reader)
        for other in gpu_class.fallback:
            if other not in names or other == gpu_class.name or gpu_class.fallback.count(other) > 1:
                message = Text(
                    "'{other}' cannot be a fallback of {name}.", other=other, name=gpu_class.name
                )
                step = Text(
                    "Name other classes on offer, each once, and none of a cluster's queue."
                )
                reader.wrong("fallback", message, step)
        if admits[gpu_class.pool] is not (gpu_class.queue is None):
            message = Text(
                "In pool {pool} both gpulease and a cluster's queue would admit.",
                pool=gpu_class.pool,
            )
            reader.wrong("pool", message, Text("Give classes with a queue a pool of their own."))
        if gpu_class.queue is not None and gpu_class.fallback:
            message = Text("What waits in a cluster's queue is served by no other class.")
            reader.wrong("fallback", message, Text("Remove the fallback or the queue."))
        ask = gpu_class.pod or PodAsk()
        unit = (resource_of(ask) or ask.kind.value, slot_units_of(ask))
        if counted.setdefault(gpu_class.pool, unit) != unit:
            reader.wrong(
                "pod",
                Text(
                    "Pool {pool} is counted in {other}, this class in {unit}: one pool has one "
                    "layout.",
                    pool=gpu_class.pool,
                    other=_unit(counted[gpu_class.pool]),
                    unit=_unit(unit),
                ),
                Text("Give the class a pool of its own, or the same resource and slot_units."),
            )


def _unit(counted: tuple[str, int]) -> str:
    resource, slots = counted
    return f"{resource} (slot_units: {slots})" if slots else resource


def _default_class(top: Reader, classes: tuple[GPUClass, ...]) -> str:
    names = tuple(gpu_class.name for gpu_class in classes)
    return top.choice("default_class", names, names[0] if names else "")


def dump(document: PolicyDocument) -> str:
    """Return the document as YAML that ``parse`` reads back to an equal document."""
    base = TimeOuts()
    tree: dict[str, Any] = {
        "default_class": document.default_class,
        "pools": {pool.name: _pool_tree(pool) for pool in document.pools},
        "classes": {c.name: _class_tree(c, document.time_outs) for c in document.classes},
        "time_outs": _time_outs_tree(document.time_outs, base, every=True),
        "limits": {
            name: format_duration(value) if isinstance(value, float) else value
            for name in LIMITS
            for value in (getattr(document, name),)
        },
        "click_runs_cells": document.click_runs_cells.value,
    }
    if terms := terms_tree(document.reservations):
        tree["reservations"] = terms
    tree |= projects_tree(document.projects)
    if document.drained_nodes:
        tree["drained_nodes"] = list(document.drained_nodes)
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def _pool_tree(pool: Pool) -> dict[str, Any]:
    spare = {"spare": pool.spare} if pool.spare else {}
    paused = {"paused": True} if pool.paused else {}
    rest = elastic_tree(pool.elastic) | pool_parts_tree(pool)
    return {"evidence": pool.evidence.value} | spare | paused | rest


def _class_tree(gpu_class: GPUClass, base: TimeOuts) -> dict[str, Any]:
    tree: dict[str, Any] = {"pool": gpu_class.pool, "title": gpu_class.title or gpu_class.name}
    if gpu_class.memory:
        tree["memory"] = format_size(gpu_class.memory)
    tree |= {"max_count": gpu_class.max_count, "price": gpu_class.price}
    own = _time_outs_tree(gpu_class.time_outs, base, every=False)
    if own:
        tree["time_outs"] = own
    if gpu_class.fallback:
        tree["fallback"] = list(gpu_class.fallback)
    tree |= {"pod": pod_tree(gpu_class.pod)} if gpu_class.pod else {}
    if gpu_class.devices_by is not DevicesBy.UUID:
        tree["devices_by"] = gpu_class.devices_by.value
    return tree | warm_tree(gpu_class.warm) | parts_tree(gpu_class)


def _time_outs_tree(outs: TimeOuts, base: TimeOuts, *, every: bool) -> dict[str, Any]:
    return {
        name: value if name in COUNTED else format_duration(value)
        for name in TIME_OUT_NAMES
        if every or getattr(base, name) != getattr(outs, name)
        for value in (getattr(outs, name),)
    }


def default_document(
    devices: Iterable[Device], time_outs: TimeOuts | None = None, version: int = 1
) -> PolicyDocument:
    """Return the document of a site that has written none: a class for each pool found.

    Without devices there is one empty pool, so that the service starts and can say so.
    """
    outs = time_outs or TimeOuts()
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
