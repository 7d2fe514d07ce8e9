"""What ``%gpu`` says, from views alone."""

from datetime import UTC, datetime, timedelta

from gpulease.kernel.status import lease_lines, time_left, variable_lines
from gpulease.transfer.api import Place, VariableStatus
from tests.kernel.stage import in_seconds, lease_view


def test_the_lease_in_three_lines() -> None:
    lease = lease_view(
        "l", gpu_class="a100", count=2, state="active", sentence="The GPU is ready.", position=None,
        utilisation=0.25, verdict="idle", next_step="Go on.",
        hard_end=in_seconds(3600 * 8), ends_at=in_seconds(130.5), ends_by="idle_warning",
    )  # fmt: skip
    first, facts, step = lease_lines(lease)
    assert first == "2 x a100 (simulated): idle. The GPU is ready."
    assert facts.startswith("GPU use 25%, idle warning in 2 min (")
    assert " h " not in facts, "one time left, the next thing that happens"
    assert step == "Go on."


def test_the_memory_of_its_gpus_is_said_where_it_is_known() -> None:
    card = {"uuid": "G", "name": "T4", "memory": 16 << 30, "simulated": False}
    held = lease_view("l", state="active", position=None, devices=[card], memory_used=3 << 30)
    assert lease_lines(held)[1] == "3.0 of 16 GB GPU memory in use."
    more = lease_lines({**held, "memory_used": 25 << 29})
    assert more[1] == "12 of 16 GB GPU memory in use.", "in the digits that JupyterLab shows"
    assert len(lease_lines({**held, "memory_used": None})) == len(lease_lines(held)) - 1


def test_a_warned_lease_says_when_it_leaves() -> None:
    lease = lease_view("l", state="warned", sentence="", position=None,
                       ends_at=in_seconds(20.5), ends_by="released")  # fmt: skip
    assert lease_lines(lease)[1].startswith("Released in 20 s (")
    assert lease_lines({**lease, "reason": "idle"})[0].endswith(": idle warning.")


def test_time_left() -> None:
    now = datetime.now(UTC)
    for seconds, text in ((-5, "0 s"), (40, "40 s"), (720, "12 min"), (28740, "7 h 59 min")):
        assert time_left((now + timedelta(seconds=seconds)).isoformat(), now) == text


def test_variables_what_blocks_first_then_by_size_and_modules_apart() -> None:
    lines = variable_lines(
        [
            VariableStatus("np", "module", Place.BOTH, 95, verified=True),
            VariableStatus("small", "int", Place.HOME, 43, verified=True),
            VariableStatus("big", "ndarray", Place.GPU, 5 * 2**20, verified=False),
            VariableStatus(
                "gen", "generator", Place.HOME, None, verified=True, blocker="It stays."
            ),
        ]
    )
    assert [line.split()[0] for line in lines] == [
        "variable", "gen", "cannot", "big", "small", "Imported:",
    ]  # fmt: skip
    assert lines[3].split() == ["big", "ndarray", "5.2", "MB", "on", "the", "GPU"]
    assert lines[-1] == "Imported: np."
    assert variable_lines([]) == []


def test_a_long_table_keeps_what_a_person_must_act_on_and_counts_the_rest() -> None:
    rows = [VariableStatus(f"x{n:02}", "int", Place.BOTH, n, verified=True) for n in range(30)]
    rows += [VariableStatus("dead", "", Place.LOST, None, verified=True)]
    lines = variable_lines(rows, 3)
    assert [line.split()[0] for line in lines] == ["variable", "dead", "x29", "x28", "And"]
    assert lines[-1] == "And 28 more: %gpu variables lists all."
    lost = [VariableStatus(f"y{n}", "", Place.LOST, None, verified=True) for n in range(5)]
    assert len(variable_lines(lost, 3)) == 6, "each of them is shown"


def test_what_shares_objects_is_counted_once() -> None:
    lines = variable_lines(
        [
            VariableStatus("model", "Net", Place.BOTH, 2**20, verified=True),
            VariableStatus(
                "optimiser", "SGD", Place.BOTH, None, verified=True, shared_with="model"
            ),
        ]
    )
    assert [line.split()[2:4] for line in lines[1:]] == [["1.0", "MB"], ["in", "model"]]


def test_functions_and_classes_that_are_here_stand_last_in_the_short_table() -> None:
    rows = [
        VariableStatus("train", "function", Place.BOTH, 9000, verified=True),
        VariableStatus("Net", "type", Place.HOME, 8000, verified=True),
        VariableStatus("broken", "function", Place.HOME, 10, verified=True, blocker="It stays."),
        VariableStatus("x", "int", Place.BOTH, 1, verified=True),
    ]
    short = [line.split()[0] for line in variable_lines(rows, 2)]
    assert short == ["variable", "broken", "cannot", "x", "And"]
    assert [line.split()[0] for line in variable_lines(rows)][3:] == ["train", "Net", "x"]
