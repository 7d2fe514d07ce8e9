"""Alerts and dashboard speak of metrics that exist, and each alert has its runbook."""

import json
import re
import shutil
import subprocess

import pytest
import yaml

from tests.helm_values import shipped
from tests.helm_values.alert_cases import CASES, document

#: What others export: Prometheus itself and kube-state-metrics.
FOREIGN = {"up", "kube_daemonset_status_number_unavailable"}


def rules():
    found = yaml.safe_load((shipped.CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in found["groups"] for rule in group["rules"]]


def panels():
    return json.loads((shipped.CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))[
        "panels"
    ]


def expressions():
    return [rule["expr"] for rule in rules()] + [
        target["expr"] for panel in panels() for target in panel["targets"]
    ]


def documented():
    """Metric -> its labels and type, from the reference page."""
    text = (shipped.DOCS / "reference" / "metrics.md").read_text(encoding="utf-8")
    found, labels = {}, set()
    for name, kind, cell in re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", text, re.MULTILINE):
        labels = labels if cell == "the same" else set(re.findall(r"`(\w+)`", cell))
        found[name] = (kind, labels)
    return found


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_is_of_documented_metrics_and_labels(expression):
    assert expression.count("(") == expression.count(")")
    known = documented()
    words = re.findall(r"\b[a-z]\w+\b(?=\s*[\[{(]|\s|\)|$)", re.sub(r'"[^"]*"', '""', expression))
    metrics = {word for word in words if word.startswith(("gpulease_", "kube_", "up"))}
    assert metrics
    for metric in metrics - FOREIGN:
        base = re.sub(r"_(bucket|count|sum)$", "", metric)
        name = base if base in known and known[base][0] == "histogram" else metric
        assert name in known, metric
        if metric != name:
            assert known[name][0] == "histogram"
        for inside in re.findall(rf"{metric}\{{([^}}]*)\}}", expression):
            used = set(re.findall(r"(\w+)\s*[=!]", inside))
            assert used <= known[name][1], metric
        for grouped in re.findall(r"by \(([\w, ]+)\)", expression):
            if len(metrics) == 1:
                assert set(grouped.split(", ")) <= known[name][1] | {"le"}, metric


def test_every_alert_has_a_runbook_and_every_runbook_its_alert():
    text = (shipped.DOCS / "runbooks.md").read_text(encoding="utf-8")
    sections = {
        heading.lower().replace(" ", "-")
        for heading in re.findall(r"^## (.+)$", text, re.MULTILINE)
    }
    named = [rule["annotations"]["runbook"].split("#") for rule in rules()]
    assert {page for page, _ in named} == {"docs/runbooks.md"}
    assert {section for _, section in named} == sections
    assert all(rule["labels"]["severity"] in {"warning", "critical"} for rule in rules())


def test_panels_do_not_overlap():
    taken = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken
        taken |= cells


# --- Prometheus's own reading


def test_every_alert_has_cases_in_which_it_fires_and_in_which_it_is_silent():
    fires = {case.alert for case in CASES if case.labels is not None}
    silent = {case.alert for case in CASES if case.labels is None}
    assert fires == silent == {rule["alert"] for rule in rules()}


@pytest.fixture
def rule_file(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text((shipped.CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))
    return file


def promtool(*arguments):
    """Run it; without it the test is skipped."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (make setup-system)")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def test_prometheus_takes_the_rules(rule_file):
    done = promtool("check", "rules", str(rule_file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules())} rules found" in done.stdout


def test_each_alert_fires_when_it_should_and_not_else(rule_file, tmp_path):
    plain = yaml.safe_load(rule_file.read_text())
    for group in plain["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]  # their words hold figures
    bare = tmp_path / "bare.yaml"
    bare.write_text(yaml.safe_dump(plain))
    cases = tmp_path / "cases.yaml"
    cases.write_text(yaml.safe_dump(document(rules(), bare.name)))
    done = promtool("test", "rules", str(cases))
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_operator_finds_what_to_scrape_by_its_labels():
    chosen = {"monitoring": {"enabled": True, "labels": {"release": "watch", "team": "it"}}}
    found = [
        each["metadata"]["labels"]
        for path, each in shipped.render(chosen)
        if path.startswith("monitoring/") and each["apiVersion"].startswith("monitoring.")
    ]
    assert [(each["release"], each["team"]) for each in found] == [("watch", "it")] * 3


def test_alerts_and_dashboard_reach_the_cluster_as_they_are_written():
    """Their own braces are Prometheus's and Grafana's, not helm's."""
    given = {"monitoring": {"enabled": True}}
    found = {each["kind"]: each for _, each in shipped.render(given, "gpu")}
    text = (shipped.CHART / "files" / "alerts.yaml").read_text(encoding="utf-8")
    assert found["PrometheusRule"]["spec"] == yaml.safe_load(text.replace("gpulease-system", "gpu"))
