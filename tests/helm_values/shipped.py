"""The shipped manifests as objects; and under other names, so that tests do not meet."""

import copy
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2] / "helm-values"
#: The namespaces that the manifests name: the hub's, and ours.
SERVERS, SYSTEM = "jupyterhub", "gpulease-system"
#: Kinds without a namespace.
GLOBAL = {
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "PriorityClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
#: Label of the namespaces of one test, by which its copy of an admission policy is bound.
TEST = "gpulease-test"


def page(heading: str) -> list[str]:
    """Return the commands of a section of docs/kubernetes.md, in order."""
    text = (ROOT.parent / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^ *```\n(.*?)^ *```$", section, re.MULTILINE | re.DOTALL)
    return [line.strip() for block in blocks for line in block.splitlines()]


def files(directory: Path = ROOT) -> list[Path]:
    """Return the files that a kustomization names, through those that it names."""
    named = yaml.safe_load((directory / "kustomization.yaml").read_text(encoding="utf-8"))
    found = []
    for name in named["resources"]:
        path = directory / name
        found += files(path) if path.is_dir() else [path]
    return found


def load(*names: str) -> list[dict[str, Any]]:
    """Return the objects in these files of ``helm-values``; without names in all of them."""
    paths = [ROOT / name for name in names] or files()
    return [each for path in paths for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


def renamed(document: dict[str, Any], servers: str, system: str) -> dict[str, Any]:
    """Return an object as it would stand in a cluster whose two namespaces are called so.

    Objects of the whole cluster get a name of this test's own, and a policy's binding counts for
    this test's namespaces only.
    """
    changed: dict[str, Any] = _names(copy.deepcopy(document), servers, system)
    metadata = changed["metadata"]
    if changed["kind"] in GLOBAL - {"Namespace"}:
        metadata["name"] += f"-{system}"
    if changed.get("roleRef", {}).get("kind") == "ClusterRole":
        changed["roleRef"]["name"] += f"-{system}"
    if changed["kind"] == "ValidatingAdmissionPolicyBinding":
        changed["spec"]["policyName"] += f"-{system}"
        changed["spec"]["matchResources"] = {"namespaceSelector": {"matchLabels": {TEST: system}}}
    if changed["kind"] == "Namespace":
        # Not under the policies of an installation that is in this cluster, too.
        covered = metadata["labels"].pop("gpulease/instance", None)
        metadata["labels"] |= {TEST: system} if covered else {}
    return changed


def _names(value: Any, servers: str, system: str, key: str = "") -> Any:
    if isinstance(value, dict):
        return {each: _names(item, servers, system, each) for each, item in value.items()}
    if isinstance(value, list):
        return [_names(item, servers, system) for item in value]
    if not isinstance(value, str):
        return value
    if value == SERVERS and key in {"namespace", "name", "kubernetes.io/metadata.name"}:
        return servers
    return value.replace(SYSTEM, system)
