"""What gpulease's chart renders to; and under other names, so that tests do not meet."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from testcluster import own_chart
from testcluster.build import HELM
from testcluster.own_chart import CHART, FEATURES, NO_HELM, SERVERS, SYSTEM

DOCS = Path(__file__).parents[2] / "docs"
#: Kinds without a namespace.
GLOBAL = {
    "ClusterRole",
    "ClusterRoleBinding",
    "PriorityClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
#: Label of the namespaces of one test, by which its copy of an admission policy is bound.
TEST = "gpulease-test"
Manifest = dict[str, Any]
__all__ = ["CHART", "DOCS", "FEATURES", "SERVERS", "SYSTEM"]


def page(heading: str, name: str = "kubernetes.md") -> list[str]:
    """Return the commands of a section of a page, in order; one may have several lines."""
    text = (DOCS / name).read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^ *```\n(.*?)^ *```$", section, re.MULTILINE | re.DOTALL)
    joined = [re.sub(r"([|\\])\n\s*", r"\1 ", block).replace("\\ ", "") for block in blocks]
    return [line.strip() for block in joined for line in block.splitlines()]


def needs_helm() -> None:
    """Skip the test, or the file that is being read, where helm is missing."""
    if own_chart.program(HELM) is None:
        pytest.skip(NO_HELM, allow_module_level=True)


def render(
    values: Mapping[str, Any] | None = None, namespace: str = SYSTEM
) -> list[tuple[str, Manifest]]:
    """Return each object with the template that it comes from."""
    needs_helm()
    return list(own_chart.render(values, namespace=namespace))


def load(
    *names: str, values: Mapping[str, Any] | None = None, namespace: str = SYSTEM
) -> list[Manifest]:
    """Return the objects of these templates; without names what every site has."""
    needs_helm()
    if not names:
        return list(own_chart.documents("", values, namespace=namespace))
    given = dict(values or {})
    for name in names:
        given |= FEATURES.get(name.partition("/")[0], {})
    return [each for path, each in render(given, namespace) if path in names]


def one(kind: str, *names: str, **given: Any) -> Manifest:
    """Return the one object of a kind among those of these templates."""
    (found,) = (each for each in load(*names, **given) if each["kind"] == kind)
    return found


def everything() -> list[Manifest]:
    """Return the objects of a site that switches all on."""
    every: dict[str, Any] = {"furtherHubs": {"lab2": {}}}
    for values in FEATURES.values():
        every |= values
    return [each for _, each in render(every)]


def renamed(document: Manifest, system: str) -> Manifest:
    """Return an object under a name that no other test has, where it is of the whole cluster.

    A policy that is bound by a label counts for this test's namespaces alone.
    """
    changed: Manifest = json.loads(json.dumps(document))
    if changed["kind"] in GLOBAL:
        changed["metadata"]["name"] += f"-{system}"
    if changed.get("roleRef", {}).get("kind") == "ClusterRole":
        changed["roleRef"]["name"] += f"-{system}"
    if changed["kind"] == "ValidatingAdmissionPolicyBinding":
        changed["spec"]["policyName"] += f"-{system}"
        bound = changed["spec"].get("matchResources")
        if bound is None:
            bound = {"namespaceSelector": {"matchLabels": {TEST: system}}}
        elif "gpulease/instance" in json.dumps(bound):
            bound = {"namespaceSelector": {"matchLabels": {f"{TEST}-users": system}}}
        changed["spec"]["matchResources"] = bound
    return changed
