"""Writes the guard's names and list into the admission policy: `python tools/admission_policy.py`.

The policy's patterns come from `gpulease.hub.gpu_names`, and what stands between its two marks from
`gpulease.hub.guard_list`: each row of that table becomes one expression for the API server.
"""

import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from textwrap import fill

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from gpulease.hub import gpu_names, guard_list  # noqa: E402

POLICY = ROOT / "helm-values" / "admission" / "gpu-asks.yaml"
BEGIN, END = "    # The list: begin.", "    # The list: end."
#: The policy's variables that are patterns of `gpu_names`.
PATTERNS = {
    "resource": gpu_names.RESOURCE,
    "nodeKey": gpu_names.NODE_KEY,
    "nodeValue": gpu_names.NODE_VALUE,
    "variable": gpu_names.VARIABLE,
    "note": gpu_names.NOTE,
    "runtime": gpu_names.RUNTIME,
    "scheduler": gpu_names.SCHEDULER,
    "hostPath": gpu_names.HOST_PATH,
    "capability": gpu_names.CAPABILITY,
    "listed": guard_list.SHIPPED,
}


def _list(words: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{each}'" for each in words) + "]"


OFF = _list(gpu_names.OFF)
#: Kind -> what the person reads whose pod is refused.
WORDS = {
    "resource": "a server has CPU, memory, ephemeral storage and huge pages",
    "volume": "a server has claims, network file systems, Secrets, ConfigMaps and emptyDirs",
    "volumeDevice": "a server has no block devices",
    "privilege": "a server is not privileged and shares nothing of its node",
    "procMount": "a server has the usual view of /proc",
    "capability": "a server has the capabilities that every container has",
    "runtimeClassName": "a server has the nodes' default runtime",
    "schedulerName": "servers go through the cluster's or the chart's scheduler",
    "priorityClassName": "servers have the chart's priority class",
    "serviceAccountName": "servers have the namespace's default account",
    "node": "servers choose no nodes but by system, zone and the chart's purpose",
    "toleration": "servers tolerate the chart's own taints",
    "spread": "servers spread over nodes and zones",
    "pod": "servers go beside the chart's own pods only",
}


def rendered(text: str) -> str:
    """Return the policy's text with everything in it that the tables say."""
    for name, pattern in PATTERNS.items():
        text, done = re.subn(
            rf"(    - name: {name}\n      expression: >-\n        r').*?('\n)",
            lambda found, pattern=pattern: found[1] + pattern + found[2],
            text,
        )
        if done != 1:
            raise SystemExit(f"{POLICY.name} has no variable {name}")
    head, rest = text.split(BEGIN + "\n")
    _old, tail = rest.split(END + "\n")
    rows = sorted(guard_list.ROWS, key=lambda row: list(WORDS).index(row.kind))
    parts = [_validation(kind, list(each)) for kind, each in groupby(rows, lambda row: row.kind)]
    text = head + BEGIN + "\n" + "".join(parts) + END + "\n" + tail
    text = _replaced(text, "init", _init())
    return _replaced(text, "harmless", _list(gpu_names.HARMLESS_NOTES))


def _replaced(text: str, name: str, expression: str) -> str:
    """Return the policy's text with another expression of a variable."""
    start = f"    - name: {name}\n      expression: >-\n"
    written = f"{start}{_folded(expression)}\n"
    return re.sub(start + r"(        .*\n)+", lambda _: written, text)


def _validation(kind: str, rows: list[guard_list.Row]) -> str:
    message = (
        f"not_listed: {WORDS[kind]}. For more a site names it in `allow` at the top of the policy"
        " gpulease-no-gpu; `gpulease doctor --hub` prints the lines."
    )
    conditions = " && ".join(_row(row) for row in rows)
    expression = f"!variables.listing || ({conditions})"
    return f"    - expression: >-\n{_folded(expression)}\n      message: >-\n{_folded(message)}\n"


def _folded(text: str) -> str:
    return fill(
        text,
        96,
        initial_indent=" " * 8,
        subsequent_indent=" " * 8,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _row(row: guard_list.Row) -> str:
    # The API server's types have no quantities.
    typed = "{}" if row.form != "key" else "dyn({})"
    if not row.at.startswith("*."):
        return _field(typed.format("object.spec"), row.at.split("."), row, 0)
    names = row.at[2:].split(".")
    found = []
    for kind in guard_list.CONTAINERS:
        inside = _field(typed.format("c"), names, row, 0)
        if kind == "initContainers" and row.kind in {"privilege", "capability"}:
            # Without the chart's own container that closes the metadata address.
            own = replace(row, kind="capability of init") if row.kind == "capability" else row
            found.append(f"variables.init.all(c, {_field(typed.format('c'), names, own, 0)})")
            continue
        found.append(f"(!has(object.spec.{kind}) || object.spec.{kind}.all(c, {inside}))")
    return " && ".join(found)


def _field(at: str, names: list[str], row: guard_list.Row, depth: int) -> str:
    if not names:
        return FORMS[row.form](at, row)
    name = names[0].removesuffix("[]")
    here = f"{at}.{name}"
    if names[0].endswith("[]"):
        item = f"i{depth}"
        inside = f"{here}.all({item}, {_field(item, names[1:], row, depth + 1)})"
    else:
        inside = _field(here, names[1:], row, depth)
    return f"(!has({here}) || {inside})"


def _on_list(line: str) -> str:
    return f"({line}).matches(variables.known)"


def _away(key: str, value: str) -> str:
    return f"({value}.lowerAscii() in {OFF} && {key}.matches(variables.nodeKey))"


def _key(at: str, row: guard_list.Row) -> str:
    zero = f"string({at}[k]) == '0'"
    line = _on_list(f"'{row.kind} ' + k")
    return f"{at}.all(k, {zero} || {line})"


def _pair(at: str, row: guard_list.Row) -> str:
    line = _on_list(f"'{row.kind} ' + k + '=' + {at}[k]")
    return f"{at}.all(k, {_away('k', f'{at}[k]')} || {line})"


def _value(at: str, row: guard_list.Row) -> str:
    kind = row.kind.removesuffix(" of init")
    line = _on_list(f"'{kind} ' + {at}")
    if kind != row.kind:
        own = _on_list(f"'{kind} ' + {at} + ' in ' + c.name")
        line = f"{line} || {own}"
    return f"({at} == '' || {line})"


def _switch(at: str, row: guard_list.Row) -> str:
    line = _on_list(f"'{row.kind} {row.at.rsplit('.', 1)[-1]}'")
    return f"(!{at} || {line})"


def _expression(at: str, row: guard_list.Row) -> str:
    sign = f"({at}.operator == 'Gt' ? '>' : {at}.operator == 'Lt' ? '<' : '=')"
    some = _on_list(f"'{row.kind} ' + {at}.key + {sign} + v")
    any_ = _on_list(f"'{row.kind} ' + {at}.key")
    away = f"({at}.operator == 'In' && {_away(f'{at}.key', 'v')})"
    return (
        f"({at}.operator in ['NotIn', 'DoesNotExist']"
        f" || ({at}.operator == 'Exists' || !has({at}.values) || {at}.values.size() == 0"
        f" ? {any_} : {at}.values.all(v, {away} || {some})))"
    )


def _toleration(at: str, row: guard_list.Row) -> str:
    key = f"(has({at}.key) ? {at}.key : '')"
    value = f"(has({at}.value) && {at}.value != '' ? '=' + {at}.value : '')"
    return _on_list(f"'{row.kind} ' + {key} + {value}")


def _term(at: str, row: guard_list.Row) -> str:
    selector = f"{at}.labelSelector"
    plain = _on_list(f"'{row.kind} ' + k + '=' + {selector}.matchLabels[k]")
    among = _on_list(f"'{row.kind} ' + e.key + '=' + e.values.join(',')")
    there = _on_list(f"'{row.kind} ' + e.key")
    return (
        f"(has({selector}) && ("
        f"(has({selector}.matchLabels) && {selector}.matchLabels.exists(k, {plain}))"
        f" || (has({selector}.matchExpressions) && {selector}.matchExpressions.exists(e,"
        f" (e.operator == 'In' && has(e.values) && {among})"
        f" || (e.operator == 'Exists' && {there})))))"
    )


def _volume(at: str, row: guard_list.Row) -> str:
    plain = "'/' + {}.split('/').filter(p, p != '' && p != '.').join('/')"
    ways = [f"has({at}.{kind})" for kind in guard_list.LISTED["volume"]]
    for kind, name in guard_list.VOLUMES_BY.items():
        named = f"{at}.{kind}.{name}"
        line = plain.format(named) if kind == "hostPath" else named
        on_list = _on_list(f"'{kind} ' + {line}")
        ways.append(f"(has({at}.{kind}) && {on_list})")
    for kind in guard_list.VOLUMES_ELSE:
        on_list = _on_list(f"'{row.kind} {kind}'")
        ways.append(f"(has({at}.{kind}) && {on_list})")
    return "(" + " || ".join(ways) + ")"


FORMS = {
    "key": _key,
    "pair": _pair,
    "value": _value,
    "switch": _switch,
    "expression": _expression,
    "toleration": _toleration,
    "term": _term,
    "volume": _volume,
}


def _init() -> str:
    """Init containers that may be privileged in no case: all but the chart's own."""
    words = [
        f"c.command[{index}] == '{each}'"
        for index, each in enumerate(guard_list.BLOCKER_COMMAND)
        if each
    ]
    is_it = " && ".join(
        [
            f"c.name == '{guard_list.BLOCKER}'",
            "c.image.matches(variables.networkTools)",
            f"has(c.command) && c.command.size() == {len(guard_list.BLOCKER_COMMAND)}",
            *words,
            "c.command[6].matches('^[0-9a-fA-F.:]+$')",
            *(f"!has(c.{each})" for each in guard_list.BLOCKER_WITHOUT),
            "(!has(c.securityContext) || !has(c.securityContext.capabilities)"
            " || !has(c.securityContext.capabilities.add)"
            " || c.securityContext.capabilities.add"
            f".all(a, a == '{guard_list.BLOCKER_CAPABILITY}'))",
            "(!has(c.env)"
            " || c.env.all(e, e.name.endsWith('_VISIBLE_DEVICES') && !has(e.valueFrom)))",
            "(!has(c.volumeMounts)"
            f" || c.volumeMounts.all(m, m.mountPath == '{guard_list.BLOCKER_MOUNT}'))",
        ]
    )
    return (
        f"has(object.spec.initContainers) ? object.spec.initContainers.filter(c, !({is_it})) : []"
    )


if __name__ == "__main__":
    POLICY.write_text(rendered(POLICY.read_text(encoding="utf-8")), encoding="utf-8")
