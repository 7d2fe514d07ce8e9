"""The ``pod:`` section of a class: YAML in, ``PodAsk`` or findings out, and back.

Owns the section's form::

    pod:
      kind: mig                      # device_plugin | shared | mig | dra | extra
      profile: 1g.10gb
      where: {memory_min: 9GiB, compute_min: "8.0", products: [NVIDIA A100-SXM4-80GB]}
      tolerations: [nvidia.com/gpu, gpulease/pool=slices:NoSchedule]
      queue: {kueue: students, max_pending: 20}   # or {kai: students}

Refuses to know what a pod looks like, and whether a cluster has what is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from gpulease.policy.document.nodes import Reader
from gpulease.policy.pods import (
    AskKind,
    ClusterQueue,
    MIGStrategy,
    PodAsk,
    QueueEngine,
    Sharing,
    Toleration,
    Where,
    gpushare,
    hami,
)
from gpulease.policy.units import format_size
from gpulease.texts import Text

#: What a kind's own keys are; the others may stand in every section.
_OWN: Final[Mapping[AskKind, tuple[str, ...]]] = {
    AskKind.DEVICE_PLUGIN: ("resource",),
    AskKind.SHARED: ("resource", "sharing", "several_shares", "slot_units", "compute_percent"),
    AskKind.MIG: ("resource", "profile", "strategy"),
    AskKind.DRA: ("device_class", "driver", "profile"),
    AskKind.EXTRA: ("resource", "amount", "slot_units"),
}
PRESETS: Final = ("hami", "gpushare")
WHERE: Final = tuple(field.name for field in fields(Where))
QUEUE: Final = (*QueueEngine, "max_pending")
KEYS: Final = (*(field.name for field in fields(PodAsk)), *PRESETS)
_SOME_OWN = frozenset(key for own in _OWN.values() for key in own)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_COMPUTED = ("cpu", "memory", "ephemeral-storage")

_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|[KMGTPE]i?|k)?")
_COMPUTE = re.compile(r"\d{1,2}\.\d{1,2}")
_IMAGE = re.compile(r"[a-z0-9][\w./:@-]{0,254}")


def read_pod(section: Reader, max_count: int) -> PodAsk:
    """Return the ask of a ``pod:`` section; what is wrong is noted in the reader."""
    preset = _preset(section)
    kind = preset.kind if preset else _kind(section)
    resource = preset.resource if preset else _resource(section)
    ask = PodAsk(
        kind=kind,
        resource=resource,
        amount=preset.amount if preset else section.whole("amount", 1, least=1),
        slot_units=section.whole("slot_units", preset.slot_units if preset else 0, least=0),
        profile=_checked(section, "profile", _LABEL),
        strategy=MIGStrategy(section.choice("strategy", tuple(MIGStrategy), MIGStrategy.MIXED)),
        sharing=Sharing(section.choice("sharing", tuple(Sharing), Sharing.ANY)),
        several_shares=section.flag("several_shares", False),
        compute_percent=section.whole("compute_percent", 0, least=0),
        device_class=_checked(section, "device_class", _DOMAIN),
        driver=_checked(section, "driver", _DOMAIN),
        where=_where(section.section("where", WHERE)),
        topology=_key(section, "topology"),
        node_selector=section.pairs("node_selector", _label),
        tolerations=tuple(_toleration(text) for text in section.texts("tolerations", _taint)),
        runtime_class=_checked(section, "runtime_class", _DOMAIN),
        image=read_image(section),
        priority_class=_checked(section, "priority_class", _DOMAIN),
        scheduler=_checked(section, "scheduler", _DOMAIN),
        requests=section.pairs("requests", _computed),
        limits=section.pairs("limits", _computed),
        extra_resources=tuple(
            (
                dict(preset.extra_resources if preset else ())
                | dict(section.pairs("extra_resources", _extra_resource))
            ).items()
        ),
        extra_annotations=section.pairs("extra_annotations", _annotation),
        extra_labels=section.pairs("extra_labels", _extra_label),
        queue=_queue(section.section("queue", QUEUE)) if "queue" in section.names else None,
    )
    _complete(section, ask, max_count)
    return ask


def read_image(section: Reader) -> str:
    """Return the image that a section names, "" for none."""
    return _checked(section, "image", _IMAGE)


def _kind(section: Reader) -> AskKind:
    kind = AskKind(section.choice("kind", tuple(AskKind), AskKind.DEVICE_PLUGIN))
    for key in section.names:
        if key in _SOME_OWN and key not in _OWN[kind]:
            section.wrong(
                key,
                Text("{key} means nothing for the kind {kind}.", key=key, kind=kind.value),
                Text("Remove it; the kind's own keys are: {keys}.", keys=", ".join(_OWN[kind])),
            )
    return kind


def _preset(section: Reader) -> PodAsk | None:
    named = [name for name in PRESETS if name in section.names]
    if not named:
        return None
    for key in section.names:
        if key in named[1:] or key == "kind" or (key in _SOME_OWN and key != "slot_units"):
            both = {"preset": named[0], "key": key}
            message = Text("{preset} is a whole ask; {key} does not go with it.", **both)
            section.wrong(key, message, Text("Remove {key} or {preset}.", **both))
    if named[0] == "hami":
        return _hami(section.section("hami", ("memory_percent", "cores_percent")))
    memory = section.section("gpushare", ("memory",))
    size = memory.size("memory", 0)
    if size < 2**30 or size % 2**30:
        memory.wrong("memory", Text("memory must be whole GiB."), Text("Write for example 8GiB."))
    return gpushare(max(1, size // 2**30))


def _hami(section: Reader) -> PodAsk:
    memory = section.whole("memory_percent", 100, least=1)
    cores = section.whole("cores_percent", 0, least=0)
    for key, value in (("memory_percent", memory), ("cores_percent", cores)):
        if value > 100:
            message = Text("{key} is more than one card.", key=key)
            section.wrong(key, message, Text("Write at most 100."))
    return hami(min(memory, 100), min(cores, 100))


def _queue(section: Reader) -> ClusterQueue | None:
    named = [engine for engine in QueueEngine if engine in section.names]
    if len(named) != 1:
        step = Text("Write for example `queue: {example}`.", example="{kueue: students}")
        section.wrong("", Text("queue names no engine, or two."), step)
        return None
    name = _checked(section, named[0], _DOMAIN)
    pending = section.whole("max_pending", ClusterQueue.max_pending, least=1)
    return ClusterQueue(named[0], name, pending) if name else None


def _where(section: Reader) -> Where:
    where = Where(
        memory_min=section.size("memory_min", 0),
        memory_max=section.size("memory_max", 0),
        compute_min=_checked(section, "compute_min", _COMPUTE),
        compute_max=_checked(section, "compute_max", _COMPUTE),
        products=section.texts("products", _product),
    )
    if 0 < where.memory_max < where.memory_min:
        message = Text("{key} is below {other}.", key="memory_max", other="memory_min")
        section.wrong("memory_max", message, Text("Exchange the two."))
    lowest, highest = where.compute_min, where.compute_max
    if lowest and highest and _version(highest) < _version(lowest):
        message = Text("{key} is below {other}.", key="compute_max", other="compute_min")
        section.wrong("compute_max", message, Text("Exchange the two."))
    return where


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _resource(section: Reader) -> str:
    resource = section.text("resource", "")
    if resource:
        try:
            _extra_resource(resource, "1")
        except ValueError as error:
            message = Text("{key}: {wrong}", key="resource", wrong=error.args[0])
            section.wrong("resource", message, Text("Write for example nvidia.com/gpu."))
    return resource


def _complete(section: Reader, ask: PodAsk, max_count: int) -> None:
    mixed = ask.kind is AskKind.MIG and ask.strategy is MIGStrategy.MIXED
    if mixed and not ask.profile and not ask.resource:
        step = Text("Write for example `profile: 1g.10gb`.")
        section.wrong("kind", Text("A MIG class lacks its profile."), step)
    if ask.kind is AskKind.EXTRA and not ask.resource and not ask.extra_resources:
        step = Text("Name `resource` or `extra_resources`.")
        section.wrong("kind", Text("A class of kind extra asks for nothing."), step)
    if ask.kind is AskKind.EXTRA and not ask.resource and max_count > 1:
        section.wrong(
            "kind",
            Text("Without a resource that is counted, one request can have one device only."),
            Text("Name `resource`, or set the class's max_count to 1."),
        )
    if ask.amount > 1 and max_count > 1:
        section.wrong(
            "amount",
            Text(
                "{n} of a resource is a part of one card; more of it is still one card.",
                n=ask.amount,
            ),
            Text("Set the class's max_count to 1."),
        )
    if ask.compute_percent > 100:
        message = Text("{key} is more than one card.", key="compute_percent")
        section.wrong("compute_percent", message, Text("Write at most 100."))
    if ask.compute_percent and ask.kind is AskKind.SHARED and ask.sharing is not Sharing.MPS:
        section.wrong(
            "compute_percent",
            Text("Only MPS bounds what of a card's compute a share may use."),
            Text("Write `sharing: mps`, or remove compute_percent."),
        )
    if ask.kind is AskKind.SHARED and max_count > 1 and not ask.several_shares:
        section.wrong(
            "kind",
            Text(
                "Two shares of one card give no more compute than one, and a device plugin with "
                "failRequestsGreaterThanOne refuses them."
            ),
            Text("Set the class's max_count to 1, or `several_shares: true` if yours allows them."),
        )


def _checked(section: Reader, key: str, form: re.Pattern[str]) -> str:
    text = section.text(key, "")
    if text and not form.fullmatch(text):
        message = Text("{key}: '{text}' is not of the right form.", key=key, text=text)
        section.wrong(key, message, Text("Correct the value of {key}.", key=key))
        return ""
    return text


def _key(section: Reader, key: str) -> str:
    text = section.text(key, "")
    if text and not _qualified(text):
        step = Text("Write for example resource.kubernetes.io/pcieRoot.")
        message = Text("{key}: '{text}' is no label or attribute.", key=key, text=text)
        section.wrong(key, message, step)
        return ""
    return text


def _qualified(text: str) -> bool:
    domain, slash, name = text.rpartition("/")
    return bool(_LABEL.fullmatch(name)) and (not slash or bool(_DOMAIN.fullmatch(domain)))


def _label(name: str, value: str) -> None:
    if not _qualified(name):
        raise ValueError(Text("'{name}' is no label.", name=name))
    if value and not _LABEL.fullmatch(value):
        raise ValueError(Text("'{value}' cannot be a label's value.", value=value))


def _product(text: str) -> str:
    if not _LABEL.fullmatch(text.replace(" ", "-")):
        raise ValueError(Text("'{text}' is no product name.", text=text))
    return text


def _annotation(name: str, _value: str) -> None:
    if not _qualified(name):
        raise ValueError(Text("'{name}' is no annotation.", name=name))
    if name.startswith("gpulease/"):
        raise ValueError(Text("'{name}' is gpulease's own.", name=name))


def _extra_label(name: str, value: str) -> None:
    _label(name, value)
    if name.startswith(("gpulease/", "app.kubernetes.io/")):
        raise ValueError(Text("'{name}' is gpulease's own.", name=name))


def _extra_resource(name: str, value: str) -> None:
    domain, slash, _ = name.rpartition("/")
    if not _qualified(name) or not slash or domain.endswith("kubernetes.io"):
        raise ValueError(Text("'{name}' is no extended resource (domain/name).", name=name))
    if not value.isdecimal() or int(value) > 2**53:
        raise ValueError(
            Text(
                "'{value}' is not a whole number: extended resources are not divided.",
                value=value,
            )
        )


def _computed(name: str, value: str) -> None:
    if name not in _COMPUTED:
        raise ValueError(
            Text(
                "'{name}' does not belong here; use one of {names}.",
                name=name,
                names=", ".join(_COMPUTED),
            )
        )
    if not _QUANTITY.fullmatch(value):
        raise ValueError(
            Text("'{value}' is not a quantity; write for example 500m or 8Gi.", value=value)
        )


def _taint(text: str) -> str:
    wanted = _toleration(text)
    if not _qualified(wanted.key) or (wanted.value and not _LABEL.fullmatch(wanted.value)):
        raise ValueError(
            Text("'{text}' is no taint; write key, key=value or key=value:NoSchedule.", text=text)
        )
    if wanted.effect not in ("", *_EFFECTS):
        raise ValueError(
            Text(
                "'{effect}' is not one of {names}.",
                effect=wanted.effect,
                names=", ".join(_EFFECTS),
            )
        )
    return text


def _toleration(text: str) -> Toleration:
    rest, _, effect = text.partition(":")
    key, _, value = rest.partition("=")
    return Toleration(key, value, effect)


def pod_tree(ask: PodAsk) -> dict[str, Any]:
    """Return the section that ``read_pod`` reads back to an equal ask; presets are written out."""
    base = PodAsk()
    tree: dict[str, Any] = {"kind": ask.kind.value}
    for name in (field.name for field in fields(PodAsk) if field.name != "kind"):
        value = getattr(ask, name)
        if value != getattr(base, name):
            tree[name] = _shown(value)
    return tree


def _shown(value: Any) -> Any:
    if isinstance(value, (MIGStrategy, Sharing)):
        return value.value
    if isinstance(value, Where):
        return _where_tree(value)
    if isinstance(value, ClusterQueue):
        return {value.engine.value: value.name, "max_pending": value.max_pending}
    if not isinstance(value, tuple):
        return value
    if isinstance(value[0], Toleration):
        return [_taint_text(each) for each in value]
    return dict(value)


def _where_tree(where: Where) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name in WHERE:
        value = getattr(where, name)
        if not value:
            continue
        if name.startswith("memory"):
            tree[name] = format_size(value)
        else:
            tree[name] = list(value) if isinstance(value, tuple) else value
    return tree


def _taint_text(toleration: Toleration) -> str:
    value = f"={toleration.value}" if toleration.value else ""
    effect = f":{toleration.effect}" if toleration.effect else ""
    return f"{toleration.key}{value}{effect}"
