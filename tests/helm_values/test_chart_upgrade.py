"""`helm upgrade` from a chart of another version: what Kubernetes lets nobody change stays."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from testcluster import own_chart
from tests.helm_values import shipped

TOKEN = "t" * 48
#: What an update of an object may not change; the others may change as a whole.
FIXED = {
    "Deployment": ("selector",),
    "DaemonSet": ("selector",),
    "PersistentVolumeClaim": ("accessModes", "resources", "storageClassName"),
}
Key = tuple[str, str, str]


def objects(chart: Path, values: dict[str, Any]) -> dict[Key, dict[str, Any]]:
    """Return what a chart renders to, by kind, namespace and name."""
    shipped.needs_helm()
    found = {}
    for _, each in own_chart.render(values, chart=chart):
        place = each["metadata"]
        found[each["kind"], place.get("namespace", ""), place["name"]] = each
    return found


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A copy of the chart that says to be of version 0.0.9."""
    found = tmp_path / "chart"
    shutil.copytree(shipped.CHART, found)
    text, changed = re.subn(
        r"(?m)^(version|appVersion): .*$", r"\1: 0.0.9", (found / "Chart.yaml").read_text()
    )
    assert changed == 2
    (found / "Chart.yaml").write_text(text)
    return found


def test_an_upgrade_keeps_names_selectors_claims_and_tokens(older: Path) -> None:
    features = {key: value for each in shipped.FEATURES.values() for key, value in each.items()}
    values = {"secrets": {"token": TOKEN}, **features}
    before, after = objects(older, values), objects(shipped.CHART, values)
    assert before.keys() == after.keys()
    for key, was in before.items():
        now = after[key]
        assert was["apiVersion"] == now["apiVersion"], key
        assert was.get("roleRef") == now.get("roleRef"), key
        for name in FIXED.get(key[0], ()):
            assert was["spec"].get(name) == now["spec"].get(name), key
    secrets = [key for key in after if key[0] == "Secret"]
    assert secrets
    for key in secrets:
        assert before[key]["stringData"] == after[key]["stringData"]
    (service,) = (each for key, each in after.items() if key[0] == "Deployment")
    assert f"{service['spec']['template']}".count("gpulease-service:0.0.9") == 0
    (was,) = (each for key, each in before.items() if key[0] == "Deployment")
    assert f"{was['spec']['template']}".count("gpulease-service:0.0.9") == 1
