"""Writes the guard's names and list into the admission policy: `python tools/admission_policy.py`.

The policy's patterns come from `gpulease.hub.gpu_names`.  Its variable `lines` is the table of
`gpulease.hub.guard_list`: each row becomes one expression that gives a pod's lines.
"""

import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from textwrap import fill

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from gpulease.hub import gpu_names, guard_list  # noqa: E402
from gpulease.hub.guard_list import USUAL  # noqa: E402

POLICY = ROOT / "chart" / "templates" / "admission" / "gpu-asks.yaml"
#: The policy's variables that are patterns of `gpu_names`.
PATTERNS = {
    "resource": gpu_names.RESOURCE,
    "nodeKey": gpu_names.NODE_KEY,
    "nodeValue": gpu_names.NODE_VALUE,
    "noGpu": gpu_names.NO_GPU,
    "variable": gpu_names.VARIABLE,
    "note": gpu_names.NOTE,
    "runtime": gpu_names.RUNTIME,
    "scheduler": gpu_names.SCHEDULER,
    "hostPath": gpu_names.HOST_PATH,
    "capability": gpu_names.CAPABILITY,
    "listed": guard_list.expression_of(guard_list.LISTED),
    "usual": guard_list.expression_of(USUAL),
}


def _list(words: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{each}'" for each in words) + "]"


#: What is left of the lines of a pod after those of the three lists.
NOT_LISTED = """variables.lines.split('\\n').filter(l, l != ''
&& (!l.matches(variables.listed) || l.matches(variables.nodeValue))
&& !l.matches(variables.usual) && !l.matches(variables.allow))"""


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
    rows = ", ".join(_row(row) for row in guard_list.ROWS)
    for name, expression in (
        ("init", _init()),
        ("harmless", _list(gpu_names.HARMLESS_NOTES)),
        ("lines", f"[{rows}].join('')"),
        ("notListed", NOT_LISTED),
    ):
        text = _replaced(text, name, expression)
    return text


def _replaced(text: str, name: str, expression: str) -> str:
    """Return the policy's text with another expression of a variable."""
    start = f"    - name: {name}\n      expression: >-\n"
    written = f"{start}{_folded(expression)}\n"
    return re.sub(start + r"(        .*\n)+", lambda _: written, text)


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
    """Return an expression that gives the lines of what stands at a row's place, each ended."""
    # The API server's types have no quantities.
    typed = "{}" if row.form != "key" else "dyn({})"
    if not row.at.startswith("*."):
        return _lines(typed.format("object.spec"), row.at.split("."), row, 0)
    names = row.at[2:].split(".")
    lists = ["variables.containers", "variables.ephemeral"]
    if row.kind in {"privilege", "capability"}:
        # Without the chart's own container that closes the metadata address.
        lists = ["variables.init", "object.spec.containers", "variables.ephemeral"]
    found = []
    for at in lists:
        own = row.kind == "capability" and at == "variables.init"
        inside = replace(row, form="ofOneContainer") if own else row
        found.append(f"{at}.map(c, {_lines(typed.format('c'), names, inside, 0)}).join('')")
    return " + ".join(found)


def _lines(at: str, names: list[str], row: guard_list.Row, depth: int) -> str:
    if not names:
        return FORMS[row.form](at, row)
    name = names[0].removesuffix("[]")
    here = f"{at}.{name}"
    if names[0].endswith("[]"):
        item = f"i{depth}"
        inside = f"{here}.map({item}, {_lines(item, names[1:], row, depth + 1)}).join('')"
    else:
        inside = _lines(here, names[1:], row, depth)
    return f"(has({here}) ? {inside} : '')"


def _word(kind: str) -> str:
    """Return the expression of a line's first word."""
    return f"'{kind} '"


def _line(*parts: str) -> str:
    """Return an expression that gives one line, from expressions of its parts."""
    # Literals side by side are one.
    return " + ".join([*parts, r"'\n'"]).replace("' + '", "")


def _is_known(line: str) -> str:
    listed, usual, allow, gpu = (
        f"({line}).matches(variables.{each})" for each in ("listed", "usual", "allow", "nodeValue")
    )
    # A star of the list stands for no GPU's name.
    return f"({usual} || {allow} || {listed} && !{gpu})"


def _away(key: str, value: str) -> str:
    return f"({key} + '=' + {value}).matches(variables.noGpu)"


def _key(at: str, row: guard_list.Row) -> str:
    line = _line(_word(row.kind), "k")
    return f"{at}.map(k, string({at}[k]) == '0' ? '' : {line}).join('')"


def _pair(at: str, row: guard_list.Row) -> str:
    line = _line(_word(row.kind), "k", "'='", f"{at}[k]")
    return f"{at}.map(k, {_away('k', f'{at}[k]')} ? '' : {line}).join('')"


def _value(at: str, row: guard_list.Row) -> str:
    line = _line(_word(row.kind), _one(at))
    return f"({at} == '' ? '' : {line})"


def _of_one_container(at: str, row: guard_list.Row) -> str:
    line = f"{_word(row.kind)} + {_one(at)}"
    own = _line(line, "' in '", "c.name")
    return f"({at} == '' || {_is_known(line)} ? '' : {own})"


def _one(text: str) -> str:
    """Return the expression of a text that is no several lines."""
    return rf"{text}.replace('\n', ' ')"


def _switch(at: str, row: guard_list.Row) -> str:
    line = _line(_word(row.kind), f"'{row.at.rsplit('.', 1)[-1]}'")
    return f"({at} ? {line} : '')"


def _expression(at: str, row: guard_list.Row) -> str:
    sign = f"({at}.operator == 'Gt' ? '>' : {at}.operator == 'Lt' ? '<' : '=')"
    each = _line(_word(row.kind), f"{at}.key", sign, "v")
    away = f"{at}.operator == 'In' && {_away(f'{at}.key', 'v')}"
    some = _line(_word(row.kind), f"{at}.key")
    return (
        f"({at}.operator in ['NotIn', 'DoesNotExist'] ? '' : {at}.operator == 'Exists'"
        f" || !has({at}.values) || {at}.values.size() == 0"
        f" ? {some} : {at}.values.map(v, {away} ? '' : {each}).join(''))"
    )


def _toleration(at: str, row: guard_list.Row) -> str:
    key = f"(has({at}.key) ? {at}.key : '')"
    value = f"(has({at}.value) && {at}.value != '' ? '=' + {at}.value : '')"
    return _line(_word(row.kind), key, value)


def _term(at: str, row: guard_list.Row) -> str:
    selector = f"{at}.labelSelector"
    labels, conditions = f"{selector}.matchLabels", f"{selector}.matchExpressions"
    ways = (
        f"(has({selector}) && has({labels})"
        f" ? {labels}.map(k, '{row.kind} ' + k + '=' + {labels}[k]) : [])"
        f" + (has({selector}) && has({conditions}) ? {conditions}"
        ".filter(e, (e.operator == 'In' && has(e.values)) || e.operator == 'Exists')"
        f".map(e, '{row.kind} ' + e.key"
        " + (e.operator == 'In' ? '=' + e.values.join(',') : '')) : [])"
    )
    # One listed way is enough; without any the pod would go beside all others.
    one = f"w.exists(l, {_is_known('l')}) ? '' : {_line('w[0]')}"
    beside_all = _line(f"'{row.kind}'")
    none = f"w.size() == 0 ? {beside_all} : {one}"
    return f"[{ways}].map(w, {none})[0]"


def _volume(at: str, row: guard_list.Row) -> str:
    listed = " || ".join(f"has({at}.{kind})" for kind in guard_list.LISTED["volume"])
    found = f"{listed} ? '' : "
    for kind, name in guard_list.VOLUMES_BY.items():
        named = f"{at}.{kind}.{name}"
        if kind == "hostPath":
            parts = f"{_one(named)}.split('/').filter(p, p != '' && p != '.').join('/')"
            named = f"'/' + {parts}"
        line = _line(_word(kind), named)
        found += f"has({at}.{kind}) ? {line} : "
    for kind in guard_list.VOLUMES_ELSE:
        line = _line(_word(row.kind), f"'{kind}'")
        found += f"has({at}.{kind}) ? {line} : "
    unheard_of = _line(f"'{row.kind}'")
    return f"({found}{unheard_of})"


FORMS = {
    "key": _key,
    "pair": _pair,
    "value": _value,
    "ofOneContainer": _of_one_container,
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
