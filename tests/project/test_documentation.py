"""The reference pages say what the code has: nothing missing, nothing invented, right defaults."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gpulease import labels
from gpulease.kernel.magics import COMMANDS
from gpulease.kernel.options import USAGE
from gpulease.kernel.route import BOTH_MAGICS
from gpulease.policy import document, lifecycle
from gpulease.policy.fairness import standing
from gpulease.providers.kubernetes.pod_resources import volumes
from tests.policy.build import request, snapshot

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def rows(text: str, heading: str) -> dict[str, list[str]]:
    """Return the rows of the first table under a heading, by the name in their first cell."""
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            found[cells[0].strip("`")] = cells[1:]
    return found


def test_every_way_of_the_files_and_every_failed_start_is_documented_and_no_other():
    text = page("reference/lease-pods.md")
    assert {code: cells[0] for code, cells in rows(text, "Files").items()} == volumes.WAYS
    whose = {
        **dict.fromkeys(lifecycle.OWN_FAILURES, "own"),
        **dict.fromkeys(lifecycle.OTHERS_FAILURES, "others'"),
    }
    failed = rows(text, "Why a start fails")
    assert {code: cells[0] for code, cells in failed.items()} == whose


def test_every_label_and_annotation_of_a_lease_pod_is_documented():
    section = page("reference/lease-pods.md").split("## Files")[0]
    own = [
        value.removeprefix(labels.PREFIX)
        for name, value in vars(labels).items()
        if name.isupper() and str(value).startswith(labels.PREFIX) and value != labels.PREFIX
    ]
    assert len(own) > 15
    assert [name for name in own if f"/{name}`" not in section] == []


def test_the_example_of_the_policy_is_valid():
    examples = re.findall(r"```yaml\n(.*?)```", page("reference/policy.md"), re.DOTALL)
    assert len(examples) == 5
    assert [document.check(example) for example in examples] == [[]] * 5


def test_the_shares_in_the_admins_example_are_what_the_planner_gives():
    text = page("admin.md").split("## Shares and budgets\n")[1].split("\n## ")[0]
    policy = document.parse(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    names = [each.name for each in policy.projects.all]
    table = [
        [int(cell) for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if re.match(r"\| \d", line)
    ]
    assert len(table) > 3
    for figures in table:
        wanted, shown = figures[:3], figures[3:]
        leases = [
            request(n, user=f"{name}{n}", server=str(n), project=name, gpu_class="a100")
            for name, count in zip(names, wanted, strict=True)
            for n in range(count)
        ]
        leases = [replace(lease, id=f"r{n}") for n, lease in enumerate(leases)]
        tree = standing(snapshot(leases, 8, policy=policy))["cards"].root
        assert [tree.below[name].share for name in names] == shown


def test_every_environment_variable_is_documented():
    used = set()
    for path in (ROOT / "gpulease").rglob("*.py"):
        used |= set(re.findall(r"\bGPULEASE_[A-Z_]+[A-Z]\b", path.read_text(encoding="utf-8")))
    documented = set(
        re.findall(r"^\| `(GPULEASE_[A-Z_]+)`", page("reference/environment.md"), re.MULTILINE)
    )
    assert used - documented == set()
    assert documented - used - {"GPULEASE_REQUIRE_ALL", "GPULEASE_CLUSTER"} == set()


def test_links_between_pages_and_files_lead_somewhere():
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
            if not target.startswith(("http:", "https:")):
                assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_each_way_through_the_code_passes_ten_files_at_most_and_all_exist():
    section = page("architecture.md").split("\n## Three ways through the code\n", 1)[1]
    ways = section.split("\n## ", 1)[0].split("\n### ")[1:]
    assert len(ways) == 3
    for way in ways:
        files = re.findall(r"^\d+\. `([^`]+)`", way, re.MULTILINE)
        assert 0 < len(files) <= 10, way
        assert [name for name in files if not (ROOT / name).is_file()] == []


def test_every_gpu_command_is_documented_and_no_other():
    section = page("reference/magics.md").split("\n## `%gpu`\n")[1].split("\n## ")[0]
    named = " ".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
    found = set(re.findall(r"`%gpu (\w+)", named))
    assert found == set(COMMANDS)


def test_the_usage_of_a_gpu_cell_is_the_documented_one():
    assert USAGE in page("reference/magics.md")


def test_the_magics_of_both_sides_are_documented():
    text = page("reference/magics.md")
    for name in BOTH_MAGICS:
        assert f"`%{name}`" in text


def test_every_setting_of_the_kubernetes_spawner_and_every_rule_is_documented():
    pytest.importorskip("kubespawner")
    from gpulease.hub import GPULeaseSpawner, guard

    text = page("reference/spawner.md")
    own = set(GPULeaseSpawner.class_own_traits(config=True))
    assert set(rows(text, "Settings")) == own
    assert set(rows(text, "The guard")) == set(guard.RULES)


def test_every_threat_is_stopped_by_a_test_that_exists():
    """A row without a test is a hope; each person of the model has at least one row."""
    section = page("security.md").split("\n## Threats\n")[1].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    table = [[cell.strip() for cell in cells] for cells in lines[1:]]
    everybody = {who.strip() for whose, *_ in table for who in whose.split(", ")}
    assert {who[0].upper() + who[1:] for who in everybody} == {
        "A student", "A student's page", "Another local user", "A hostile companion",
        "A hostile pod", "A lost agent key", "A stolen server token", "A curious instructor",
        "Another hub", "Somebody on the network",
    }  # fmt: skip
    for _, _, stops, shown in table:
        assert stops
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", shown)
        assert named, f"{shown} names no test"
        for path, name in named:
            text = (ROOT / path).read_text(encoding="utf-8")
            assert re.search(rf"def {name}\(", text), f"{path} has no {name}"
