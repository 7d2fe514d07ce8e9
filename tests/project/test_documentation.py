"""The reference pages say what the code has: nothing missing, nothing invented, right defaults."""

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from gpulease import labels
from gpulease.cli import main as command_line
from gpulease.gpus.agent.metrics import Metrics as AgentMetrics
from gpulease.kernel.magics import COMMANDS
from gpulease.kernel.options import USAGE
from gpulease.kernel.route import BOTH_MAGICS
from gpulease.policy import document, lifecycle
from gpulease.policy.fairness import standing
from gpulease.policy.model import EvidenceLevel, TimeOuts
from gpulease.policy.units import format_duration
from gpulease.protocol.asks import AskBody
from gpulease.providers.kubernetes.asks import volumes
from gpulease.service.metrics import Metrics
from gpulease.service.routes import OPERATIONS
from gpulease.service.schemas.reservation_bodies import ReservationBody
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


def test_every_time_out_is_documented_with_its_default():
    documented = {
        name: cells[0] for name, cells in rows(page("reference/policy.md"), "Time-outs").items()
    }
    defaults = TimeOuts()
    assert documented == {
        field.name: str(defaults.keeps)
        if field.name == "keeps"
        else format_duration(getattr(defaults, field.name))
        for field in fields(TimeOuts)
    }


@pytest.mark.parametrize(
    ("heading", "path"),
    [
        ("Top level", ""),
        ("A pool", "pools *"),
        ("Reservations", "reservations"),
        ("A class", "classes *"),
        ("The pod of a class", "classes * pod"),
        ("Limits", "limits"),
        ("Projects", "projects *"),
        ("A budget", "projects * budget"),
    ],
)
def test_every_key_of_the_policy_is_documented(heading, path):
    schema = document.json_schema()
    for key in path.split():
        schema = schema["additionalProperties"] if key == "*" else schema["properties"][key]
    assert set(rows(page("reference/policy.md"), heading)) == set(schema["properties"])


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


def test_the_evidence_levels_are_named():
    text = rows(page("reference/policy.md"), "A pool")["evidence"][-1]
    assert all(f"`{level.value}`" in text for level in EvidenceLevel)


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


def test_every_metric_is_documented_and_no_other():
    exported = {
        line.split()[2]
        for metrics in (Metrics(), AgentMetrics("node"))
        for line in metrics.text().decode().splitlines()
        if line.startswith("# TYPE gpulease_") and not line.split()[2].endswith("_created")
    }
    documented = set(
        re.findall(r"^\| `(gpulease_\w+)`", page("reference/metrics.md"), re.MULTILINE)
    )
    assert documented == exported


def test_every_transition_is_documented_with_its_reasons():
    text = page("architecture.md")
    table = re.findall(r"^\| (.+?) \| (`\w+`) \| (.+?) \|$", text, re.MULTILINE)
    documented = {
        (source, target.strip("`"))
        for sources, target, _ in table
        for source in (
            ["queued", "starting", "active", "warned", "draining"]
            if sources == "every state"
            else re.findall(r"`(\w+)`", sources)
        )
    }
    assert documented == {(row.source.value, row.target.value) for row in lifecycle.TRANSITIONS}
    reasons = {reason for row in lifecycle.TRANSITIONS for reason in row.reasons if reason}
    assert {reason for reason in reasons if f"`{reason}`" not in text} == set()


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


def test_every_operation_of_the_api_is_documented_and_no_other():
    found = set(
        re.findall(
            r"^\| `(GET|POST|PUT|PATCH|DELETE) (\S+)` \|", page("reference/rest.md"), re.MULTILINE
        )
    )
    assert found == {(each.method.upper(), each.path) for each in OPERATIONS}


def test_every_member_of_an_ask_is_documented():
    assert set(rows(page("reference/rest.md"), "Asking")) == set(AskBody.__annotations__)


def test_every_member_of_a_reservation_is_documented():
    documented = set(rows(page("reference/rest.md"), "Reserving"))
    assert documented == set(ReservationBody.model_fields)


def test_every_setting_of_the_service_is_documented_and_no_other():
    from gpulease.service.settings.application import GPULeaseService

    text = page("reference/cli.md").split("## `gpulease service`")[1].split("\n## ")[0]
    own = set(GPULeaseService.class_own_traits(config=True))
    row = re.compile(r"^\|(?: `--([\w-]+)[^`]*`)? \| `(\w+)` \|", re.MULTILINE)
    found = row.findall(text)
    assert {setting for _, setting in found} == own
    options = {option: setting for option, setting in found if option}
    assert options.pop("simulate") == "simulate"
    aliases = {f"GPULeaseService.{each}" for each in options.values()}
    assert aliases == set(GPULeaseService().aliases.values())


def test_every_setting_of_a_cluster_is_documented_and_no_other():
    from gpulease.service.settings.kubernetes import KubernetesSettings

    text = page("reference/cli.md").split("c.KubernetesSettings")[1].split("\n## ")[0]
    found = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert found == set(KubernetesSettings.class_own_traits(config=True))


def test_every_gpu_command_is_documented_and_no_other():
    section = page("reference/magics.md").split("\n## `%gpu`\n")[1].split("\n## ")[0]
    found = set(re.findall(r"^\| `%gpu (\w+)", section, re.MULTILINE))
    assert found == set(COMMANDS)


def test_the_usage_of_a_gpu_cell_is_the_documented_one():
    assert USAGE in page("reference/magics.md")


def test_the_magics_of_both_sides_are_documented():
    text = page("reference/magics.md")
    for name in BOTH_MAGICS:
        assert f"`%{name}`" in text


@pytest.mark.parametrize(
    ("words", "section"),
    [
        (["demo"], "demo"),
        (["companion"], "companion"),
        (["agent"], "agent"),
        (["policy", "check"], "policy check FILE"),
        (["db", "upgrade"], "db upgrade --database URL"),
        (["admin", "list"], "admin"),
        (["admin", "end"], "admin"),
        (["usage"], "usage"),
        (["projects"], "projects"),
    ],
)
def test_every_option_of_the_command_line_is_documented(words, section, capsys):
    with pytest.raises(SystemExit):
        command_line([*words, "--help"])
    usage = capsys.readouterr().out.split("\n\n")[0]
    found = set(re.findall(r"--[a-z][a-z-]+", usage))
    text = page("reference/cli.md").split(f"\n## `gpulease {section}`\n")
    if section.partition(" ")[0] in ("policy", "db"):
        described = page("reference/cli.md")
    else:
        described = text[1].split("\n## ")[0]
    assert {option for option in found if option not in described} == set()
    if section in ("demo", "companion", "agent"):
        assert set(re.findall(r"^\| `(--[a-z-]+)", described, re.MULTILINE)) == found


def test_every_subcommand_is_documented(capsys):
    with pytest.raises(SystemExit):
        command_line(["--help"])
    listed = re.findall(r"^    (\w+)\b", capsys.readouterr().out, re.MULTILINE)
    documented = re.findall(r"^## `gpulease (\w+)", page("reference/cli.md"), re.MULTILINE)
    assert set(listed) == set(documented)


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
