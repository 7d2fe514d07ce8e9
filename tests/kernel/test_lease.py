"""Waiting, queueing, clicking, reclaiming: a real kernel and supervisor, a staged service."""

import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpulease.companion.tree import marked
from gpulease.errors import GPULeaseError
from gpulease.kernel.clock import own_times
from gpulease.protocol.service import LeaseView
from gpulease.sides.environment import ENV_COMPANION, companion_mark
from tests.helpers import process_is_gone, wait_for
from tests.kernel.conftest import Lent
from tests.kernel.parts import Cell, HomeKernel, printed, shows
from tests.kernel.stage import LEASE, Stage, in_seconds, lease_view

pytestmark = pytest.mark.processes

STARTUP = Path(__file__).parents[2] / "shared-data/etc/ipython/startup/00-gpulease.py"


@pytest.fixture
def kernel(kernel_on_bus: HomeKernel) -> HomeKernel:
    return kernel_on_bus


def give(stage: Stage) -> None:
    """Let every ask be granted at once."""
    stage.on_ask = lambda lease: stage.grant(lease["id"])


def asks(stage: Stage) -> int:
    return sum(1 for name, _ in stage.calls if name == "ask")


def away(kernel: HomeKernel, cell: Cell) -> bool:
    return cell.ok and cell.result != str(kernel.pid)


def test_a_gpu_cell_asks_waits_shows_progress_and_runs(stage: Stage, kernel: HomeKernel) -> None:
    give(stage)
    cell = kernel.run("%%gpu\nimport os; os.getpid()")
    assert away(kernel, cell), cell.traceback
    ids = {
        m["content"]["transient"]["display_id"]
        for m in cell.messages
        if m["msg_type"] in ("display_data", "update_display_data")
    }
    assert len(ids) == 1, "progress is one display"
    assert cell.shown().splitlines()[0] == "Asking for a GPU ..."
    assert cell.kinds()[-2:] == ["clear_output", "execute_result"], "and leaves not even a line"
    assert kernel.run("%%gpu\n1").kinds() == ["execute_result"]
    assert asks(stage) == 1


def test_progress_beside_other_output_takes_only_itself_away(
    stage: Stage, kernel: HomeKernel
) -> None:
    give(stage)
    cell = kernel.run("print('mine')\nwith gpu():\n    x = 1\nprint('too')")
    assert cell.ok, cell.traceback
    assert "clear_output" not in cell.kinds()
    assert cell.text() == "mine\ntoo\n"
    displays = [m for m in cell.messages if m["msg_type"].endswith("display_data")]
    assert displays[-1]["content"]["data"]["text/plain"] == ""


def test_a_wait_that_fails_leaves_no_queue_text(stage: Stage, kernel: HomeKernel) -> None:
    cell = kernel.run("%%gpu --no-wait\n1")
    assert cell.kinds()[-2:] == ["clear_output", "error"]


def test_the_wait_is_bounded_and_the_ask_stays(stage: Stage, kernel: HomeKernel) -> None:
    cell = kernel.run("%%gpu --wait 0.2s\nprint('ran')")
    assert cell.error.startswith("GPUNotReady: No GPU within 0 s")
    for words in ("You are next", "All GPUs are in use", "No estimate yet", "stays in the queue"):
        assert words in cell.error
    assert cell.text() == ""
    assert stage.leases[LEASE]["state"] == "queued"
    stage.grant(LEASE)
    assert kernel.run("%%gpu\n1").ok
    assert list(stage.leases) == [LEASE]


def test_a_cell_without_a_class_means_the_request_that_waits(
    stage: Stage, kernel: HomeKernel
) -> None:
    """As where the lease changes its GPUs just now: the service refuses a second one."""
    kernel.run("%gpu request --class large")
    stage.change(LEASE, gpu_class="small", asked_class="large")
    for cell in ("%%gpu --no-wait\n1", "%%gpu --no-wait --class small\n1", "%gpu request"):
        kernel.run(cell)
    asked = [args["gpu_class"] for name, args in stage.calls if name == "ask"]
    assert asked == ["large", "large", "small", "large"]


def test_a_request_that_waits_is_withdrawn_and_no_gpu_is_given_back(
    stage: Stage, kernel: HomeKernel
) -> None:
    assert not kernel.run("%%gpu --no-wait\n1").ok
    assert kernel.run("%gpu return").text() == "Your request for a GPU was withdrawn.\n"
    assert stage.leases == {} or stage.leases[LEASE]["state"] == "ended"
    assert "given back" not in kernel.run("%gpu").text()


def test_how_the_gpus_image_differs_is_said_while_the_cell_waits(
    stage: Stage, kernel: HomeKernel
) -> None:
    stage.differences = ["torch is 2.5 here and 2.6 on the GPU."]
    cell = kernel.run("%%gpu --wait 0.2s\n1")
    assert any(stage.differences[0] in shown for shown in cell.shown().splitlines())
    assert stage.differences[0] in cell.error
    told = next(args for name, args in stage.calls if name == "environment")
    assert told["python"].startswith("3.")
    assert "ipython" in told["packages"]


def test_no_wait_asks_and_raises_at_once(stage: Stage, kernel: HomeKernel) -> None:
    assert kernel.run("%%gpu --no-wait\n1").error.startswith("GPUNotReady")
    assert stage.leases[LEASE]["state"] == "queued"


def test_a_cell_that_asks_for_more_than_is_held_says_so(stage: Stage, kernel: HomeKernel) -> None:
    give(stage)
    assert kernel.run("%%gpu --count 1\npass").ok
    cell = kernel.run("%%gpu --count 9\npass")
    assert not cell.ok
    assert "This server holds 1 x " in cell.error
    assert "asks for 9" in cell.error
    assert "asks for 2 on 2 nodes" in kernel.run("%%gpu --nodes 2\npass").error
    assert "%gpu return" in cell.error
    assert kernel.run("%%gpu\npass").ok


def test_a_cell_that_asks_for_what_was_granted_runs_on_what_is_left_of_it(
    stage: Stage, kernel: HomeKernel
) -> None:
    """Others needed some of its GPUs, and the notebook still says how many it wants."""
    stage.on_ask = lambda lease: stage.grant(lease["id"], count=2, asked_count=3)
    assert away(kernel, kernel.run("%%gpu --count 3 --min-count 1\nimport os; os.getpid()"))
    assert kernel.run("%%gpu --count 3 --min-count 1\n1").result == "1"
    more = kernel.run("%%gpu --count 4\n1")
    assert "the cell asks for 4" in more.traceback


def test_a_class_that_is_not_offered_is_no_reason_to_return_a_gpu(
    stage: Stage, kernel: HomeKernel
) -> None:
    give(stage)
    assert "the next request checks the class" in kernel.run("%gpu config class t4").text()
    kernel.run("%gpu config class default")
    stage.tell({"event": "classes", "classes": [{"name": "a100"}, {"name": "t4"}]})
    assert kernel.run("%%gpu\npass").ok
    for refused in (kernel.run("%%gpu --class a10\n1"), kernel.run("%gpu config class a10")):
        assert "no GPU class 'a10'" in refused.error
        assert "Did you mean a100?" in refused.traceback
        assert "%gpu return" not in refused.traceback
    set_again = kernel.run("%gpu config class t4").text()
    assert set_again == "class: t4; wait: the default; cells: none; tokens taken: none\n"


def test_a_time_that_shortens_nothing_is_said_once(stage: Stage, kernel: HomeKernel) -> None:
    stage.on_ask = lambda lease: stage.grant(lease["id"], hard_end=in_seconds(7200))
    assert kernel.run("%%gpu\npass").ok
    assert "--for has no effect" in kernel.run("%%gpu --for 30m\npass").shown()
    assert "--for has no effect" not in kernel.run("%%gpu --for 30m\npass").shown()
    assert "--for has no effect" not in kernel.run("%%gpu --for 3h\npass").shown()


def test_help_is_shown_and_nothing_runs(stage: Stage, kernel: HomeKernel) -> None:
    asked = kernel.run("%%gpu --help\n1 / 0")
    assert asked.ok, asked.traceback
    assert "--no-wait" in asked.text()
    assert "%gpu keep" in kernel.run("%gpu --help").text()
    assert "%gpu keep" in kernel.run("%gpu request --help").text()
    assert not stage.leases


def test_a_restarted_kernel_says_that_cells_run_in_the_notebook_again(
    stage: Stage, kernel: HomeKernel
) -> None:
    assert kernel.run("%gpu on").ok
    wait_for(lambda: stage.sticky, what="the notebook server's note")
    for load in ("%unload_ext gpulease", "%load_ext gpulease"):  # as a restart: all is forgotten
        assert kernel.run(load).ok
    wait_for(lambda: len(stage.kernels) == 1, what="the kernel on the bus again")
    first = kernel.run("import os; os.getpid()")
    assert first.result == str(kernel.pid)
    assert "The kernel was restarted, so cells run in your notebook again." in first.shown()
    assert "restarted" not in kernel.run("1").shown()
    wait_for(lambda: not stage.sticky, what="the notebook server's note, gone")


def test_else_cpu_says_so(stage: Stage, kernel: HomeKernel) -> None:
    cell = kernel.run("%%gpu --wait 0.2s --else cpu\nimport os; os.getpid()")
    assert cell.result == str(kernel.pid)
    assert "on the CPU (--else cpu)" in cell.shown()
    failing = kernel.run("%%gpu --no-wait --else cpu\n1 / 0")
    assert failing.error == "ZeroDivisionError: division by zero"
    assert failing.kinds().count("error") == 1


def test_an_interrupt_withdraws_an_ask_that_this_cell_made(
    stage: Stage, kernel: HomeKernel
) -> None:
    def waiting(message: dict[str, object]) -> bool:
        return "in use" in str(message["content"])

    cell = kernel.run("%%gpu\n1", when=waiting, do=kernel.interrupt)
    assert cell.error.startswith("KeyboardInterrupt: Your request for a GPU was withdrawn.")
    assert "\n" not in cell.traceback, "no frame of gpulease's own"
    assert stage.leases[LEASE]["state"] == "ended"


def test_an_interrupt_keeps_an_ask_made_earlier(stage: Stage, kernel: HomeKernel) -> None:
    assert "queued" in kernel.run("%gpu request").text()

    def waiting(message: dict[str, object]) -> bool:
        return "in use" in str(message["content"])

    cell = kernel.run("%%gpu\n1", when=waiting, do=kernel.interrupt)
    assert cell.error.startswith("KeyboardInterrupt: The cell did not run. Your request stays")
    assert stage.leases[LEASE]["state"] == "queued"


def test_position_and_time_are_shown_as_they_change(stage: Stage, kernel: HomeKernel) -> None:
    said = "Alle GPUs sind in Benutzung. Sie haben Platz 3. Erwartet um 12:00:00 UTC."
    stage.on_ask = lambda lease: stage.change(
        lease["id"], position=3, expected_start=in_seconds(90), sentence=said
    )
    cell = kernel.run("%%gpu --wait 1s\n1")
    assert said.partition(" um ")[0] in cell.shown()
    assert not re.search("Position|Expected", cell.shown()), "it is said once"


def test_a_snapshot_from_before_the_ask_ends_no_wait(stage: Stage, kernel: HomeKernel) -> None:
    def late_snapshot(lease: LeaseView) -> None:
        stage.tell({"event": "snapshot", "leases": [], "classes": []})
        stage.grant(lease["id"])

    stage.on_ask = late_snapshot
    cell = kernel.run("%%gpu\n1")
    assert cell.ok, cell.traceback
    assert ("lease", {"lease_id": LEASE}) in stage.calls


def test_a_request_that_ended_unheard_says_how(stage: Stage, kernel: HomeKernel) -> None:
    def end_unheard(lease: LeaseView) -> None:
        end = {"reason": "forced", "sentence": "An admin ended it.", "note": "", "at": ""}
        ended = {**stage.leases[lease["id"]], "version": 5, "state": "ended", "end": end}
        stage.leases[lease["id"]] = ended  # type: ignore[assignment]
        stage.tell({"event": "snapshot", "leases": [], "classes": []})

    stage.on_ask = end_unheard
    assert kernel.run("%%gpu\n1").error.startswith("GPULeaseError: An admin ended it.")


@pytest.fixture
def run(stage: Stage, lent: Lent, tmp_path: Path) -> Iterator[HomeKernel]:
    """The kernel of a whole notebook's run, where nobody sits."""
    given = {"GPULEASE_BUS": str(stage.path), "GPULEASE_CELL_OPTIONS": "--wait 365d"}
    taken = lent.take(tmp_path / "run", given)
    yield taken
    lent.give_back(taken, as_new=False)  # its environment is a run's


def test_without_a_service_cells_run_here_where_a_grader_says_so(
    lent: Lent, tmp_path: Path
) -> None:
    taken = lent.take(tmp_path / "grader", {"GPULEASE_CELL_OPTIONS": "--else cpu"})
    try:
        assert taken.run("%load_ext gpulease").ok
        cell = taken.run("%%gpu\nx = 1\nx + 1")
        assert cell.result == "2", cell.traceback
        assert taken.run("x").result == "1"
        assert "NameError" in taken.run("%%gpu\nmissing").error
    finally:
        lent.give_back(taken, as_new=False)


def test_a_run_asks_again_where_others_ended_its_request(stage: Stage, run: HomeKernel) -> None:
    """Nobody is there to run the cell again, and a run never fails because it has to wait."""
    end = {"reason": "forced", "sentence": "An admin ended it.", "note": "", "at": ""}

    def ended_once(lease: LeaseView) -> None:
        if asks(stage) > 1:
            stage.grant(lease["id"])
        else:
            stage.change(lease["id"], state="ended", end=end)

    stage.on_ask = ended_once
    assert run.run("%load_ext gpulease").ok
    cell = run.run("%%gpu\n1 + 1")
    assert cell.result == "2", cell.traceback
    assert asks(stage) == 2
    denied = {**end, "reason": "denied"}
    run.run("%gpu return")
    stage.on_ask = lambda lease: stage.change(lease["id"], state="ended", end=denied)
    assert not run.run("%%gpu\n1").ok


@pytest.mark.parametrize(
    ("dies", "name"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "CompanionDied"),
        ("import os, signal; os.kill(os.getppid(), signal.SIGKILL)\nwhile True: pass", "GPULost"),
        ("1/0", "ZeroDivisionError"),
    ],
)
def test_a_run_tells_what_failed_beneath_its_cell_from_its_own_error(
    dies: str, name: str, stage: Stage, run: HomeKernel
) -> None:
    """By the error's name its worker knows whether the run is tried again."""
    give(stage)
    assert run.run("%load_ext gpulease").ok
    error = run.run(f"%%gpu\n{dies}").error
    assert error.startswith(name)
    assert "the next GPU cell" not in error


@pytest.mark.parametrize("cell", ["y = 1", "%%gpu\ny = 1", "with gpu():\n    y = 1"])
def test_a_run_whose_values_died_between_two_cells_does_not_blame_the_next(
    cell: str, stage: Stage, run: HomeKernel
) -> None:
    give(stage)
    assert run.run("%load_ext gpulease").ok
    companion = int(run.run("%%gpu\nimport os\nx = (i for i in [1])\nos.getpid()").result)
    os.kill(companion, signal.SIGKILL)
    # The next cell may run before anybody has heard of it, if it needs nothing from there.
    error = wait_for(lambda: run.run(cell).error, what="a cell that cannot go on")
    assert error.startswith("CompanionDied: The companion"), error
    assert "the next GPU cell" not in error


def test_a_run_goes_on_after_a_loss_of_nothing(stage: Stage, run: HomeKernel) -> None:
    give(stage)
    assert run.run("%load_ext gpulease").ok
    companion = int(run.run("%%gpu\nimport os\nx = [1]\nos.getpid()").result)
    assert run.run("x").result == "[1]"
    os.kill(companion, signal.SIGKILL)

    def another() -> bool:
        said = run.run("%%gpu\nx, os.getpid()")
        assert said.ok or "died" in said.error, said.traceback
        return said.ok and said.result.startswith("([1], ") and str(companion) not in said.result

    wait_for(another, what="a companion of its own")


def test_a_person_goes_on_after_the_same_loss(stage: Stage, kernel: HomeKernel) -> None:
    give(stage)
    companion = int(kernel.run("%%gpu\nimport os\nx = (i for i in [1])\nos.getpid()").result)
    os.kill(companion, signal.SIGKILL)
    wait_for(lambda: "died" in kernel.run("y = 1").shown(), what="the loss is told")
    assert kernel.run("%%gpu\ny").result == "1"


def test_a_denied_ask_says_why(stage: Stage, kernel: HomeKernel) -> None:
    end = {"reason": "denied", "sentence": "Your project has no GPUs.", "note": "", "at": ""}
    stage.on_ask = lambda lease: stage.change(lease["id"], state="ended", end=end)
    assert kernel.run("%%gpu\n1").error.startswith("GPULeaseError: Your project has no GPUs.")


def test_a_click_makes_cells_run_away_and_says_so(stage: Stage, kernel: HomeKernel) -> None:
    kernel.run("x = 1")
    kernel_id = next(iter(stage.kernels.values()))
    stage.add(lease_view(f"{LEASE}-clicked", origin="page", click_runs_cells="all"))
    stage.grant(f"{LEASE}-clicked", kernel_id=kernel_id)
    wait_for(lambda: "connection" in [name for name, _ in stage.calls], what="attaching by itself")
    cell = kernel.run("import os; os.getpid()")
    assert away(kernel, cell), cell.traceback
    assert "You asked for a GPU" in cell.shown()
    assert kernel.run("%gpu off").ok
    assert kernel.run("import os; os.getpid()").result == str(kernel.pid)


def test_a_click_sends_away_what_uses_a_gpu_library(stage: Stage, kernel: HomeKernel) -> None:
    (kernel.directory / "cupy.py").write_text("import os\ndef pid(): return os.getpid()")
    kernel.run("import os, cupy")
    kernel_id = next(iter(stage.kernels.values()))
    stage.add(lease_view(f"{LEASE}-auto", origin="page", click_runs_cells="auto"))
    stage.grant(f"{LEASE}-auto", kernel_id=kernel_id)
    wait_for(lambda: "connection" in [name for name, _ in stage.calls], what="attaching by itself")
    cell = kernel.run("cupy.pid()")
    assert away(kernel, cell), cell.traceback
    assert "You asked for a GPU" in cell.shown()
    assert kernel.run("os.getpid()").result == str(kernel.pid)
    assert kernel.run("%gpu off").ok
    assert kernel.run("cupy.pid()").result == str(kernel.pid)


def test_a_click_before_the_first_cell_is_for_the_first_cell(stage: Stage, tmp_path: Path) -> None:
    stage.add(lease_view(f"{LEASE}-early", origin="page", click_runs_cells="all"))
    stage.grant(f"{LEASE}-early")
    kernel = HomeKernel(tmp_path / "late", {"GPULEASE_BUS": str(stage.path)})
    try:
        kernel.run("%load_ext gpulease")
        cell = kernel.run("import os; os.getpid()")
        assert away(kernel, cell), cell.traceback
        assert "You asked for a GPU" in cell.shown()
    finally:
        kernel.stop()


def test_an_autoloaded_kernel_speaks_to_the_bus_before_its_first_cell(
    stage: Stage, tmp_path: Path
) -> None:
    startup = tmp_path / "auto/ipython/profile_default/startup"
    startup.mkdir(parents=True)
    shutil.copy(STARTUP, startup)
    kernel = HomeKernel(
        tmp_path / "auto", {"GPULEASE_BUS": str(stage.path), "GPULEASE_AUTOLOAD": "1"}
    )
    try:
        wait_for(lambda: list(stage.kernels.values()) == ["home"], what="the kernel's own id")
        stage.add(lease_view(f"{LEASE}-loaded", origin="page", click_runs_cells="all"))
        stage.grant(f"{LEASE}-loaded", kernel_id="home")
        wait_for(lambda: "connection" in [name for name, _ in stage.calls], what="attaching")
        cell = kernel.run("import os; os.getpid()")
        assert away(kernel, cell), cell.traceback
    finally:
        kernel.stop()


def test_reclaim_brings_everything_home_and_the_next_cell_asks_again(
    stage: Stage, kernel: HomeKernel
) -> None:
    give(stage)
    kernel.run("values = [1]")
    kernel.run(
        "%%gpu\nimport numpy as np\nvalues.append(2)\nbig = np.ones(4_000_000)\nfloat(big.sum())"
    )
    stage.order(LEASE, type="warn", until=in_seconds(20), sentence="The GPU is idle.")
    stage.order(LEASE, type="drain", until=in_seconds(20), reason="idle", park=False)
    assert stage.hear("drained", LEASE)["result"] == "done"
    stage.end(LEASE, "idle", "The GPU was not used for 10 minutes.")
    first = kernel.run("values, float(big.sum()), _")
    assert first.result == "([1, 2], 4000000.0, 4000000.0)", first.traceback
    note = first.shown().splitlines()[0]
    assert "not used for 10 minutes. Your variables are here" in note, "the service's own words"
    cell = kernel.run("%%gpu\nvalues.append(3)\nfloat(big.sum())")
    assert cell.result == "4000000.0", cell.traceback
    assert kernel.run("values").result == "[1, 2, 3]"
    assert asks(stage) == 2


#: Ends the companion when home asks it for the last time.
def test_a_cell_between_the_end_and_its_telling_finds_everything_home(
    stage: Stage, kernel: HomeKernel
) -> None:
    give(stage)
    companion = int(kernel.run("%%gpu\nimport os\nos.getpid()").result or 0)
    kernel.run("%%gpu\nvalues = [1]")
    stage.order(LEASE, type="drain", until=in_seconds(20), reason="idle", park=False)
    assert stage.hear("drained", LEASE)["result"] == "done"
    supervisor = stage.hear("hello", LEASE)["pid"]
    os.kill(supervisor, signal.SIGSTOP)  # what it says of the end comes late
    try:
        os.kill(companion, signal.SIGKILL)
        cell = kernel.run("values")
        assert cell.result == "[1]", cell.traceback
        assert "lost" not in cell.shown() + cell.text("stderr")
    finally:
        os.kill(supervisor, signal.SIGCONT)
    stage.end(LEASE, "idle", "It was idle.")
    again = kernel.run("%%gpu\nvalues.append(2)\nvalues")
    assert again.result == "[1, 2]", again.traceback


def test_what_becomes_of_the_gpu_stands_under_the_last_gpu_cell(
    stage: Stage, kernel: HomeKernel
) -> None:
    give(stage)
    kernel.run("%%gpu\n1")
    kernel.run("%%gpu\nx = 2")
    gpu_cell = kernel.last_id
    kernel.run("x")
    stage.order(LEASE, type="warn", until="2030-01-02T03:04:05+00:00", reason="idle")
    warning = kernel.late("The GPU is released at", gpu_cell)["content"]
    assert "unless it is used; %gpu keep keeps it." in warning["data"]["text/plain"]
    stage.order(LEASE, type="clear")
    withdrawn = kernel.late("", gpu_cell)
    assert withdrawn["msg_type"] == "update_display_data"
    assert withdrawn["content"]["transient"] == warning["transient"], "in the same place"
    assert "leaves" not in kernel.run("x").shown(), "a warning that was taken back is not told"
    stage.order(LEASE, type="warn", until=in_seconds(60), reason="idle")
    kernel.late("The GPU is released at", gpu_cell)
    first, second = kernel.run("x"), kernel.run("x")
    assert "The GPU is released at" in first.shown().splitlines()[0]
    assert second.kinds() == ["execute_result"], "told once"
    stage.order(LEASE, type="drain", until=in_seconds(20), reason="idle", park=False)
    stage.hear("drained", LEASE)
    stage.end(LEASE, "idle", "The GPU was released: it was not used.")
    final = kernel.late("The GPU was released", gpu_cell)["content"]["data"]["text/plain"]
    assert final.endswith(
        "not used. Your variables are here; the next %%gpu cell gets a GPU again."
    )
    assert kernel.run("x").shown().count("The GPU") == 1


def test_using_the_gpu_takes_the_warning_away(stage: Stage, kernel: HomeKernel) -> None:
    give(stage)
    kernel.run("%%gpu\n1")
    gpu_cell = kernel.last_id
    stage.order(LEASE, type="warn", until=in_seconds(60), reason="expired")
    shown = kernel.late("The GPU is released at", gpu_cell)["content"]["data"]["text/plain"]
    assert "keep" not in shown, "nothing keeps it beyond its time"
    assert kernel.run("%%gpu\n2").kinds() == ["execute_result"]
    taken = [m for m in kernel.others if m["msg_type"] == "update_display_data"]
    assert [m["content"]["data"]["text/plain"] for m in taken] == [""]
    assert taken[0]["parent_header"]["msg_id"] == gpu_cell


def test_a_sleeping_cell_is_stopped_and_its_values_are_home(
    stage: Stage, kernel: HomeKernel
) -> None:
    give(stage)

    def drain() -> None:
        stage.order(LEASE, type="drain", until=in_seconds(20), reason="expired")

    cell = kernel.run(
        "%%gpu\ndone = 41 + 1\nprint('sleeping', flush=True)\nimport time; time.sleep(600)",
        when=printed("sleeping"),
        do=drain,
    )
    assert "taken back while this cell ran" in cell.error, cell.traceback
    assert "GPUTimeOver" in "".join(cell.traceback)
    assert "Its time was up, or its GPU-hours." in cell.error
    assert stage.hear("drained", LEASE)["result"] == "done"
    stage.end(LEASE, "idle", "Reclaimed.")
    assert kernel.run("done").result == "42"


def test_a_drain_does_not_wait_for_a_home_cell(stage: Stage, kernel: HomeKernel) -> None:
    give(stage)
    kernel.run("%%gpu\nvalues = [1, 2, 3]")
    kernel.run("pass")

    def drain() -> None:
        stage.order(LEASE, type="drain", until=in_seconds(20), reason="idle")
        assert stage.hear("drained", LEASE)["result"] == "done"
        stage.end(LEASE, "idle", "It was idle.")
        (kernel.directory / "go").touch()

    cell = kernel.run(
        "print('computing', flush=True)\nimport os, time\n"
        "while not os.path.exists('go'): time.sleep(0.01)\nsum(values)",
        when=printed("computing"),
        do=drain,
    )
    assert cell.result == "6", cell.traceback
    assert kernel.run("values").result == "[1, 2, 3]"


def test_a_drain_reaches_a_cell_that_asks_for_input(stage: Stage, kernel: HomeKernel) -> None:
    give(stage)

    def drain() -> None:
        stage.order(LEASE, type="drain", until=in_seconds(20), reason="idle")

    cell = kernel.run("%%gpu\nbefore = 7\ninput('? ')", do=drain)
    assert "taken back" in cell.error, cell.traceback
    assert stage.hear("drained", LEASE)["result"] == "done"
    assert kernel.run("before").result == "7"


def test_a_cell_that_begins_as_the_lease_drains_is_not_interrupted(
    stage: Stage, kernel: HomeKernel
) -> None:
    """The notebook server may say that the lease drains before its supervisor does."""
    give(stage)
    assert kernel.run("%%gpu\nvalues = [1]").ok
    stage.change(LEASE, state="draining", sentence="It leaves.")
    wait_for(lambda: "It leaves." in kernel.run("%gpu").text(), what="the kernel knows it")

    def leave() -> None:
        stage.order(LEASE, type="drain", until=in_seconds(20), reason="preempted", park=True)
        assert stage.hear("drained", LEASE)["result"] == "done"
        stage.end(LEASE, "preempted", "Somebody with a prior claim needs it.")

    cell = kernel.run("%%gpu\nvalues.append(2)\nvalues", when=shows("leaving"), do=leave)
    assert cell.result == "[1, 2]", cell.traceback
    assert asks(stage) == 2


def test_a_called_off_drain_leaves_the_companion(stage: Stage, kernel: HomeKernel) -> None:
    give(stage)
    pid = kernel.run("%%gpu\nimport os; os.getpid()").result
    stage.order(LEASE, type="drain", until=in_seconds(20), reason="idle")
    stage.hear("drained", LEASE)
    stage.order(LEASE, type="resume")
    assert kernel.run("%%gpu\nos.getpid()").result == pid


def test_a_drain_that_a_restarted_service_asks_for_again_is_answered_again(
    stage: Stage, kernel: HomeKernel
) -> None:
    give(stage)
    kernel.run("%%gpu\nvalues = [1, 2, 3]")

    def answers() -> list[str]:
        return [m["result"] for _, m in stage.said if m["type"] == "drained"]

    stage.order(LEASE, type="drain", until=in_seconds(60), reason="idle")
    wait_for(lambda: answers() == ["done"], 30, "the drain")
    stage.order(LEASE, type="drain", until=in_seconds(60), reason="idle")
    wait_for(lambda: answers() == ["done", "done"], 30, "the same answer, long before its bound")
    stage.end(LEASE, "idle", "It was idle.")
    assert kernel.run("values").result == "[1, 2, 3]"


def test_what_blocked_a_drain_is_looked_at_again_when_it_shall_park(
    stage: Stage, kernel: HomeKernel
) -> None:
    give(stage)
    kernel.run("%%gpu\nvalues = {1}\nstuck = (i for i in values)")

    def answers() -> list[str]:
        return [m["result"] for _, m in stage.said if m["type"] == "drained"]

    stage.order(LEASE, type="drain", until=in_seconds(120), reason="idle")
    wait_for(lambda: answers() == ["blocked"], 60, "the drain")
    stage.order(LEASE, type="drain", until=in_seconds(120), reason="idle", park=True)
    wait_for(lambda: answers() == ["blocked", "parked"], 60, "the parking, before its bound")
    stage.end(LEASE, "idle", "It was idle.")
    # This stage parks nowhere: what was not copied to the notebook is lost, and says so.
    assert "gave stuck was lost with the companion" in kernel.run("stuck").error


#: Values that take seconds to be read, and are too large to be copied back unasked: of a base of
#: compiled code they are asked how.
SLOW = """
import functools, time
class Slow(functools.partial):
    def __reduce__(self):
        time.sleep(4)
        return Slow, (len, bytes(17 << 20))
"""


def cells_of(stage: Stage, since: int) -> list[int]:
    """What the supervisor has said since of cells, a sample a second."""
    said = [m for _, m in stage.said[since:] if m["type"] == "activity"]
    return [sample["cells"] for message in said for sample in message["samples"]]


def test_a_cell_is_under_way_from_its_first_value_there_to_its_last_value_back(
    stage: Stage, kernel: HomeKernel
) -> None:
    give(stage)
    kernel.run(SLOW)
    kernel.run("%%gpu\npass")
    kernel.run("slow = Slow(len)")
    wait_for(lambda: cells_of(stage, 0)[-1:] == [0], what="idleness")
    before = len(stage.said)
    sending = kernel.run("%%gpu\nslow; None")
    assert sending.ok, sending.traceback
    wait_for(lambda: 1 in cells_of(stage, before), what="its values on their way count as it")
    wait_for(lambda: cells_of(stage, before)[-1:] == [0], what="idleness")
    back = len(stage.said)
    block = kernel.run("with gpu():\n    made = Slow(len)\nmade; None")
    assert block.ok, block.traceback
    wait_for(lambda: cells_of(stage, back).count(1) >= 3, what="its values on their way back, too")


def test_what_comes_home_after_a_cell_is_no_cell(stage: Stage, kernel: HomeKernel) -> None:
    give(stage)
    kernel.run(SLOW)
    kernel.run("%%gpu\nmade = Slow(len); print('made')")
    before = len(stage.said)
    wait_for(lambda: len(cells_of(stage, before)) >= 6, what="samples")
    said = cells_of(stage, before)  # the first may be of the cell itself
    assert 1 not in said[said.index(0) :], said


AWAY = GPULeaseError("service_unreachable", "The lease service does not answer.", status=503)


def is_waiting(message: dict[str, object]) -> bool:
    return "This cell waits for it until" in str(message["content"])


def test_a_cell_waits_for_a_service_that_is_away_and_goes_on_by_itself(
    stage: Stage, kernel: HomeKernel
) -> None:
    give(stage)
    stage.outage = AWAY

    def back() -> None:
        stage.outage = None

    cell = kernel.run("%%gpu\nimport os; os.getpid()", when=is_waiting, do=back)
    assert away(kernel, cell), cell.traceback
    assert "clear_output" in cell.kinds(), "nothing of it stays in the notebook"


def test_the_wait_for_a_service_that_is_away_is_bounded(stage: Stage, kernel: HomeKernel) -> None:
    stage.outage = AWAY
    cell = kernel.run("%%gpu --wait 1.5s\n1")
    assert "does not answer. This cell waited 2 s for it." in cell.error
    assert is_waiting({"content": cell.shown()})
    assert kernel.run("%%gpu --no-wait\n1").error.startswith("GPULeaseError: The lease service")
    here = kernel.run("%%gpu --no-wait --else cpu\nimport os; os.getpid()")
    assert here.result == str(kernel.pid)


def test_the_wait_for_a_service_that_is_away_can_be_interrupted(
    stage: Stage, kernel: HomeKernel
) -> None:
    stage.outage = AWAY
    cell = kernel.run("%%gpu\n1", when=is_waiting, do=kernel.interrupt)
    assert cell.error.startswith("KeyboardInterrupt")
    assert kernel.run("1 + 1").result == "2"


def test_cells_beside_a_gpu_that_is_held_need_no_service(stage: Stage, kernel: HomeKernel) -> None:
    give(stage)
    assert kernel.run("%%gpu\nx = [1]").ok
    stage.outage = AWAY
    stage.hang_up()
    assert kernel.run("%%gpu\nx.append(2)").kinds() == []
    assert kernel.run("x").result == "[1, 2]"
    assert kernel.run("%%gpu\nsum(x)").kinds() == ["execute_result"]


#: A home cell within which this kernel's companion opens; it ends when the test says so.
#: It hears of the lease itself: between cells the companion might be connected already.
HOLDS_ON = """
import os, pathlib, time
link = get_ipython().run_cell_async.__self__._cells.session.link
print("begun", flush=True)
while link.opening is None or not link.opening.done(): link._inbox.run_one(0.05)
pathlib.Path("opened").touch()
while not os.path.exists("go"): time.sleep(0.01)
"""


def test_a_companion_that_dies_before_it_is_connected_is_replaced_at_once(
    stage: Stage, kernel: HomeKernel
) -> None:
    kernel_id = next(iter(stage.kernels.values()))
    stage.add(lease_view(LEASE, origin="magic"))

    def kill() -> None:
        stage.grant(LEASE, kernel_id=kernel_id)
        wait_for((kernel.directory / "opened").exists, what="the companion's opening")
        mark = companion_mark(LEASE, kernel_id)
        (pid,) = marked([mark], ENV_COMPANION)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: process_is_gone(pid), what="the companion's end")
        # The supervisor notices, and tells: only then does the cell end.
        wait_for(lambda: not marked([mark], ENV_COMPANION), what="the process collected")
        (kernel.directory / "go").touch()

    assert kernel.run(HOLDS_ON, when=printed("begun"), do=kill).ok
    cell = kernel.run("%%gpu\nimport os; os.getpid()")
    assert away(kernel, cell), cell.traceback


#: The supervisor is silent when it is asked to open a companion, ``times`` times.
SILENT = """
from gpulease.kernel import control
real, times = control.ControlClient.call, [{times}]
def call(self, name, args, timeout):
    if name == "open" and times[0]:
        times[0] -= 1
        raise self._unreachable()
    return real(self, name, args, timeout)
control.ControlClient.call = call
"""


@pytest.mark.parametrize("times", [1, 2])
def test_a_connection_that_breaks_before_there_is_a_companion_is_made_once_more(
    stage: Stage, kernel: HomeKernel, times: int
) -> None:
    give(stage)
    assert kernel.run(SILENT.format(times=times)).ok
    cell = kernel.run("%%gpu\nimport os; os.getpid()")
    if times > 1:
        assert "supervisor does not answer any more" in cell.error
        assert kernel.run("times").result == "[0]", "and no third time"
        cell = kernel.run("%%gpu\nimport os; os.getpid()")
    assert away(kernel, cell), cell.traceback
    assert kernel.run("control.ControlClient.call = real").ok
    assert asks(stage) == 1


def test_events_while_a_companion_is_connected_open_no_second_one(
    stage: Stage, kernel: HomeKernel
) -> None:
    give(stage)
    kernel_id = next(iter(stage.kernels.values()))
    stop = threading.Event()

    def chatter() -> None:
        while not stop.wait(0.005):
            if LEASE in stage.leases:
                stage.change(LEASE, kernel_id=kernel_id)

    talker = threading.Thread(target=chatter)
    talker.start()
    try:
        pids = [kernel.run("%%gpu\nimport os; os.getpid()").result for _ in range(3)]
    finally:
        stop.set()
        talker.join()
    assert len(set(pids)) == 1
    assert [name for name, _ in stage.calls].count("connection") == 1


def test_the_bus_comes_back(stage: Stage, kernel: HomeKernel) -> None:
    give(stage)
    pid = kernel.run("%%gpu\nimport os; os.getpid()").result
    stage.hang_up()
    assert kernel.run("%%gpu\nos.getpid()").result == pid, "cells run on without the server"
    wait_for(lambda: stage.kernels, what="the kernel on the bus again")
    assert kernel.run("%gpu").ok


def test_status_keep_and_return(stage: Stage, kernel: HomeKernel) -> None:
    give(stage)
    kernel.run("%%gpu\nanswer = 42")
    shown = kernel.run("%gpu").text()
    for words in (
        "simulated (simulated): active",
        "Cells run here",
        "answer",
        "int",
        "in your notebook and on the GPU",
    ):
        assert words in shown
    assert kernel.run("%gpu return").ok
    assert ("end", {"lease_id": LEASE, "force": True}) in stage.calls
    assert kernel.run("answer").result == "42"
    assert "No GPU lease" in kernel.run("%gpu").text()


def test_a_forced_return_brings_what_can_come_and_names_what_is_lost(
    stage: Stage, kernel: HomeKernel
) -> None:
    give(stage)
    kernel.run(
        "%%gpu\nlarge = bytes(7 << 20)\nlock = __import__('threading').Lock(); lock.acquire()"
    )
    assert "These cannot be copied to the notebook: lock." in kernel.run("%gpu return").error
    kernel.run("%%gpu\nlarge = bytes(8 << 20)")
    returned = kernel.run("%gpu return --force")
    assert returned.text().endswith("Your variables are here, but not what could not come: lock.\n")
    here = kernel.run("len(large) >> 20")
    assert here.result == "8", here.text() + here.error
    assert "lost with the companion" in kernel.run("lock").error
    assert "no GPU lease" in kernel.run("%gpu return --force").error


def test_a_restart_keeps_the_lease(stage: Stage, kernel: HomeKernel) -> None:
    assert "no GPU lease" in kernel.run("%gpu restart").error
    give(stage)
    before = kernel.run("%%gpu\nanswer = 42\n__import__('os').getpid()").result
    assert kernel.run("%gpu restart").ok
    assert not [call for call in stage.calls if call[0] == "end"]
    again = kernel.run("%%gpu\nassert answer == 42\n__import__('os').getpid()")
    assert again.ok
    assert again.result != before


def test_keep_takes_the_warning_away_and_says_until_when(stage: Stage, kernel: HomeKernel) -> None:
    give(stage)
    assert "no GPU lease" in kernel.run("%gpu keep").error
    kernel.run("%%gpu\nx = 1")
    gpu_cell = kernel.last_id
    stage.order(LEASE, type="warn", until=in_seconds(60), reason="idle")
    kernel.late("The GPU is released at", gpu_cell)
    stage.change(LEASE, state="warned", warned_until=in_seconds(60))
    kept = kernel.run("%gpu keep")
    assert ("keep", {"lease_id": LEASE}) in stage.calls
    until = own_times("12:34:56 UTC")
    assert kept.text().strip() == f"Kept. Yours until {until}."
    taken = [m for m in kernel.others if m["msg_type"] == "update_display_data"]
    assert [m["content"]["data"]["text/plain"] for m in taken] == [""], "the note under the cell"
    assert kernel.run("x").kinds() == ["execute_result"], "no warning is told any more"


def test_a_refused_keep_says_why(stage: Stage, kernel: HomeKernel) -> None:
    give(stage)
    kernel.run("%%gpu\n1")
    stage.change(LEASE, keep={"allowed": False, "left": 0, "seconds": 600.0, "reason": "used up"})
    refused = kernel.run("%gpu keep")
    assert refused.error.startswith("GPULeaseError: Keep was used as often as allowed.")


def test_two_kernels_of_a_server_share_the_lease(
    stage: Stage, kernel: HomeKernel, tmp_path: Path
) -> None:
    give(stage)
    first = kernel.run("%%gpu\nimport os; os.getpid()").result
    other = HomeKernel(tmp_path / "other", {"GPULEASE_BUS": str(stage.path)})
    try:
        other.run("%load_ext gpulease")
        second = other.run("%%gpu\nimport os; os.getpid()")
        assert away(other, second), second.traceback
        assert second.result != first, "each has a companion of its own"
        assert list(stage.leases) == [LEASE]
    finally:
        other.stop()
