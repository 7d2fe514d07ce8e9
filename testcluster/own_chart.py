"""The chart that gpulease ships, rendered by helm as a site would have it."""

import copy
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from testcluster.api import Object
from testcluster.build import HELM, KUBERNETES_VERSION, Program, beside_program
from testcluster.processes import REPOSITORY

CHART = REPOSITORY / "chart"
#: As safe as the other one, and ten times as fast.
LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SERVERS, SYSTEM = "jupyterhub", "gpulease-system"
#: What only some sites switch on: folder of the chart's templates -> values.
FEATURES: Mapping[str, Mapping[str, Any]] = {
    "user-namespaces": {"userNamespaces": {"enabled": True}},
    "kueue": {"kueue": {"enabled": True}},
    "warm": {"warm": {"enabled": True}},
    "several-nodes": {"severalNodes": {"enabled": True}},
    "monitoring": {"monitoring": {"enabled": True}},
}
NO_HELM = "helm is not built (make setup-cluster)"


def program(wanted: Program) -> str | None:
    """Return a program as the cluster's are built, or from PATH."""
    built = beside_program(wanted)
    return str(built) if built.exists() else shutil.which(wanted.name)


def render(
    values: Mapping[str, Any] | None = None, *, namespace: str = SYSTEM, chart: Path = CHART
) -> Iterator[tuple[str, Object]]:
    """Yield each object with its template, as ``leases/network.yaml``.

    Raises:
        RuntimeError: helm is missing, or refuses; its words.
    """
    for path, document in _rendered(json.dumps(values or {}), namespace, chart):
        yield path, copy.deepcopy(document)


@lru_cache(maxsize=64)
def _rendered(values: str, namespace: str, chart: Path) -> tuple[tuple[str, Object], ...]:
    helm = program(HELM)
    if helm is None:
        raise RuntimeError(NO_HELM)
    done = subprocess.run(
        [
            *(helm, "template", "gpulease", str(chart), "--namespace", namespace),
            *("--kube-version", KUBERNETES_VERSION, "--values", "-"),
        ],
        input=values,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = []
    for text in done.stdout.split("\n---\n"):
        document = yaml.load(text, Loader=LOADER)
        if document:
            source = text.split("# Source: gpulease/templates/", 1)[1].splitlines()[0]
            found.append((source, document))
    return tuple(found)


def documents(
    feature: str = "", values: Mapping[str, Any] | None = None, *, namespace: str = SYSTEM
) -> Iterator[Object]:
    """Yield what every site has, or only what one of `FEATURES` brings beside it."""
    given = {**(values or {}), **FEATURES.get(feature, {})}
    for path, document in render(given, namespace=namespace):
        folder = path.partition("/")[0]
        if folder != "tests" and (folder == feature if feature else folder not in FEATURES):
            yield document


def hub_values(
    values: Mapping[str, Any] | None = None, *, namespace: str = SYSTEM, hub: str = ""
) -> str:
    """Return the values that the chart prints for a hub."""
    name = f"gpulease-hub-values{'-' * bool(hub)}{hub}"
    (found,) = (
        each
        for path, each in render(values, namespace=namespace)
        if path == "hub-values.yaml" and each["metadata"]["name"] == name
    )
    text: str = found["data"]["values.yaml"]
    return text
