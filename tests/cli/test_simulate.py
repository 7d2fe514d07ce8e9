"""``gpulease simulate`` and ``gpulease policy whatif``, as typed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpulease import cli
from gpulease.policy import document
from gpulease.policy.model import EndReason, Lease, LeaseState, Verdict, Wait
from gpulease.service.control_loop.deciding import Plans
from gpulease.store import Change, Store, VerdictChange, upgrade, writing
from tests.policy.build import request, snapshot
from tests.simulate.build import policy

TRACE = """session,start,busy,project
a,0,300,bio
a,2000,60,bio
b,100,60,chem
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "trace.csv").write_text(TRACE)
    text = document.dump(policy())
    (tmp_path / "now.yaml").write_text(text)
    (tmp_path / "short.yaml").write_text(text.replace("idle: 5m", "idle: 1m"))
    return tmp_path


def test_two_policies_side_by_side(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--trace", f"{files}/trace.csv", "--devices", "cards=2"]
    words += ["--policy", f"{files}/now.yaml", "--compare", f"{files}/short.yaml"]
    assert cli.main([*words, "--picture", f"{files}/out.svg"]) == 0
    shown = capsys.readouterr().out
    assert "now.yaml" in shown
    assert "short.yaml" in shown
    assert "bio: GPU-hours held" in shown
    assert ElementTree.parse(files / "out.svg").getroot().tag.endswith("svg")
    assert cli.main([*words, "--json"]) == 0
    now, short = json.loads(capsys.readouterr().out)["outcomes"]
    assert short["held_hours"] < now["held_hours"]
    assert now["busy_hours"] == pytest.approx(short["busy_hours"]) == pytest.approx(420 / 3600)


def test_a_pool_that_grows_may_begin_with_nothing(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", "--trace", f"{files}/trace.csv", "--devices", "cards=0", "--policy"]
    assert cli.main([*words, f"{files}/now.yaml"]) == 2
    assert "elastic" in capsys.readouterr().err
    text = (files / "now.yaml").read_text()
    (files / "grows.yaml").write_text(text.replace("evidence: process", "elastic: {max: 4}"))
    assert cli.main([*words, f"{files}/grows.yaml", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["outcomes"]
    assert found["waits"]["served"] == 3
    assert found["added_hours"] > found["held_hours"] > 0


def test_a_difference_is_told_with_its_range(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With half the time to think nothing is idle for long; with twice the time all is taken."""
    words = ["simulate", "--trace", f"{files}/trace.csv", "--devices", "cards=2", "--sensitivity"]
    words += ["--policy", f"{files}/now.yaml", "--compare", f"{files}/short.yaml"]
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sensitivity"]["think"] == [0.5, 1.0, 2.0]
    (differences,) = found["sensitivity"]["differences"].values()
    now, short = (each["held_hours"] for each in found["outcomes"])
    held = differences["held_hours"]
    assert held["least"] <= short - now <= held["most"] < 0
    assert "behave the same" in found["assumption"]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert f"GPU-hours held: {held['least']:+.1f} to {held['most']:+.1f}" in shown
    assert "behave the same" in shown


def test_a_scenario_brings_gpus_and_a_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", "--scenario", "research", "--weeks", "0.05"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[2] == "8,"


def test_a_scenario_needs_nothing_but_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", "--scenario", "research", "--weeks", "0.06", "--devices", "t4=2x2"]
    assert cli.main([*words, "--save-trace", f"{tmp_path}/made.csv"]) == 0
    first = capsys.readouterr().out
    assert "GPU-hours held" in first
    again = ["simulate", "--trace", f"{tmp_path}/made.csv", "--devices", "t4=2x2"]
    assert cli.main(again) == 0
    assert "GPU-hours held" in capsys.readouterr().out


def test_what_the_database_recorded(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = f"sqlite:///{files}/leases.sqlite"
    upgrade(address)
    (files / "leases.sqlite").chmod(0o600)
    began = datetime.now(UTC) - timedelta(days=1)

    def at(seconds: float) -> datetime:
        return began + timedelta(seconds=seconds)

    lease = replace(
        request(0),
        created=began,
        ticket=(began, 1),
        active_since=at(5),
        state=LeaseState.ENDED,
        end_reason=EndReason.IDLE,
        ended=at(900),
    )
    store = Store.open(address)
    try:
        store.save([Change(None, lease, "ann", "asked")], began)
        changes = [(10, Verdict.BUSY), (110, Verdict.IDLE)]
        store.write(
            writing.add_evidence, [VerdictChange(lease.id, at(s), v) for s, v in changes], []
        )
        # The service may run meanwhile.
        words = ["simulate", "--history", "--database", address, "--devices", "cards=1", "--json"]
        assert cli.main([*words, "--policy", f"{files}/now.yaml"]) == 0
        (given,) = json.loads(capsys.readouterr().out)["outcomes"]
        # Policy and GPUs are those of the last plan, where one is kept.
        assert cli.main(["simulate", "--history", "--database", address, "--json"]) == 2
        assert "--devices" in capsys.readouterr().err
        keep_plan(store, lease)
        assert cli.main(["simulate", "--history", "--database", address, "--json"]) == 0
    finally:
        store.close()
    (found,) = json.loads(capsys.readouterr().out)["outcomes"]
    assert found["name"] == "in force"
    assert found["gpus"] == given["gpus"] == 1
    assert found["held_hours"] == pytest.approx(given["held_hours"], rel=0.01)
    assert found["busy_hours"] == pytest.approx(100 / 3600)
    assert found["waits"]["served"] == 1


def keep_plan(store: Store, lease: Lease) -> None:
    """Keep a plan of a site with one card, then another that does not name the site."""
    packer, view = Plans(), snapshot([], 1)
    for number in range(2):
        queued = replace(request(number + 1), id=f"q{number}")
        packed = packer.packed(replace(view, leases=(queued,)), [Wait(queued.id, "no_capacity")])
        assert packed is not None
        packer.kept(packed)
        store.save([Change(None, queued, "planner", "asked")], lease.created, packed.body)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trace", __file__], "Line 1"),
        (["--scenario", "mix", "--sensitivity"], "--compare"),
        (["--scenario", "mix", "--devices", "t4"], "POOL=N"),
        (["--scenario", "mix", "--devices", "t4=0"], "POOL=N"),
        (["--scenario", "mix", "--devices", "t4=2", "--weeks", "nan"], "--weeks"),
        (["--scenario", "mix", "--devices", "t4=2", "--think", "0"], "--think"),
        (["--scenario", "mix", "--devices", "t4=2", "--start", "-1"], "--start"),
        (["--trace", "/nowhere/x.csv", "--devices", "t4=2"], "cannot be used"),
        (["--history", "--devices", "t4=2", "--days", "0"], "--days"),
    ],
)
def test_what_does_not_fit_is_said(words, said, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", *words]) == 2
    assert said in capsys.readouterr().err


def test_of_several_policies_the_wrong_one_is_named(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = files / "wrong.yaml"
    wrong.write_text((files / "now.yaml").read_text().replace("idle: 5m", "idle: soon"))
    words = ["simulate", "--trace", f"{files}/trace.csv", "--devices", "cards=2"]
    both = ["--policy", f"{files}/now.yaml", "--compare", f"{files}/short.yaml", str(wrong)]
    assert cli.main([*words, *both]) == 2
    said = capsys.readouterr().err
    assert f"{wrong}: Line " in said
    assert f"gpulease policy check {wrong}" in said


@pytest.mark.parametrize(
    ("column", "devices", "said"),
    [
        ("", "card=2", "No policy has a pool 'card'; there is cards."),
        (",h100", "cards=2", "The trace asks for class 'h100', which no policy has. There is t4."),
    ],
)
def test_what_no_policy_has_is_refused_and_not_taken_for_a_saving(
    column, devices, said, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = "session,start,busy" + (",gpu_class" if column else "") + f"\na,0,300{column}\n"
    (files / "odd.csv").write_text(trace)
    words = ["--trace", f"{files}/odd.csv", "--policy", f"{files}/now.yaml"]
    assert cli.main(["simulate", *words, "--devices", devices]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [("simulate", "--history"), ("admin", "export", "maria"), ("admin", "forget", "maria"),
     ("admin", "backup", "{folder}/to.backup")],
)  # fmt: skip
def test_a_database_that_is_not_there_is_not_made(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.sqlite"
    given = [word.format(folder=tmp_path) for word in words]
    assert cli.main([*given, "--database", f"sqlite:///{wrong}"]) == 2
    assert f"There is no database {wrong}." in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
