"""The reference pages say what the code has: nothing missing, nothing invented, right defaults."""

import ast
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gpulease.kernel.magics import COMMANDS
from gpulease.kernel.options import USAGE
from gpulease.kernel.route import BOTH_MAGICS
from gpulease.policy import document, lifecycle
from gpulease.policy.fairness import standing
from gpulease.protocol import labels
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


#: Files that a way passes at most, and where it begins again: by a message, or on the loop's tick.
WAYS = {
    "A variable returns to the notebook": (10, ()),
    "An ask becomes a pod": (9, ()),
    "An idle lease is found": (6, ("sample", "round")),
}


def ways() -> dict[str, list[tuple[Path, list[str]]]]:
    """Return each way's files, and the functions that are named of each."""
    section = page("architecture.md").split("\n## Three ways through the code\n", 1)[1]
    found = {}
    for way in section.split("\n## ", 1)[0].split("\n### ")[1:]:
        steps = re.findall(r"^\d+\. `([^`]+)`: (.*)$", way, re.MULTILINE)
        found[way.partition("\n")[0]] = [
            (ROOT / name, re.findall(r"`(\w+)`", said)) for name, said in steps
        ]
    return found


@cache
def defined(path: Path) -> set[str]:
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {x.name for x in tree if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef)}


@cache
def called(path: Path) -> set[str]:
    calls = (x.func for x in ast.walk(ast.parse(path.read_text())) if isinstance(x, ast.Call))
    return {x.id if isinstance(x, ast.Name) else getattr(x, "attr", "") for x in calls}


def test_each_way_through_the_code_passes_few_files_and_all_exist():
    assert ways().keys() == WAYS.keys()
    for way, steps in ways().items():
        assert 0 < len(steps) <= WAYS[way][0], way
        assert [str(path) for path, _ in steps if not path.is_file()] == []


@pytest.mark.parametrize("way", ["An ask becomes a pod", "An idle lease is found"])
def test_a_way_through_the_code_is_true(way):
    """Each function is there, and a file before it calls it, or one that such a file calls."""
    steps, begins = ways()[way], WAYS[way][1]
    files = [path for path in (ROOT / "gpulease").rglob("*.py") if "transfer" not in str(path)]
    told = set[str]()  # what the files before call
    for number, (path, names) in enumerate(steps):
        assert names, f"{path.name}: no function is named"
        assert set(names) <= defined(path), path.name
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts[-2:])
        for place, name in enumerate(names):
            between = (
                other
                for other in files
                if f"{module} import" in other.read_text()
                and name in called(other)
                and defined(other) & told
            )
            begun = number == 0 or name in begins or name in told
            beside = place > 0 and name in called(path)
            assert begun or beside or any(between), f"{path.name}: who calls {name}?"
        told |= called(path)


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
