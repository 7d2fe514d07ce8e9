"""What a server knows of its leases: tables of events in, views out."""

from datetime import UTC, datetime, timedelta

from gpulease.lab.board import Board

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def lease(lease_id="a", state="active", kernel_id=None, **more):
    return {
        "id": lease_id, "state": state, "kernel_id": kernel_id, "version": 1,
        "active_since": None, "verdict": "idle", "hard_end": None, **more,
    }  # fmt: skip


GRANT = {
    "attempt": 1, "token": "secret", "visible_devices": "", "simulated": True,
    "drain_max": 60.0, "park_dir": "",
}  # fmt: skip


def test_a_grant_is_kept_apart_from_what_kernels_see():
    board = Board()
    shown = board.take_lease(lease(grant=GRANT))
    assert "grant" not in shown
    assert "secret" not in str(board.all_shown())
    assert board.grants["a"]["token"] == "secret"


def test_an_ended_lease_takes_its_grant_along():
    board = Board()
    board.take_lease(lease(grant=GRANT))
    assert board.take_lease(lease(state="ended"))["state"] == "ended"
    assert (board.leases, board.grants) == ({}, {})


def test_a_snapshot_tells_what_is_gone():
    board = Board()
    board.take_snapshot([lease("a"), lease("b")], [])
    assert board.take_snapshot([lease("b")], []) == ["a"]


def test_a_pages_lease_is_for_the_kernel_that_ran_a_cell_last_and_stays_with_it():
    board = Board()
    board.cell("k1", False, NOW)
    board.cell("k2", False, NOW + timedelta(seconds=1))
    assert board.take_lease(lease(state="queued"))["kernel_id"] is None
    assert board.take_lease(lease())["kernel_id"] == "k2"
    board.cell("k1", False, NOW + timedelta(seconds=2))
    assert board.shown("a")["kernel_id"] == "k2"


def test_a_pages_lease_finds_its_kernel_when_the_first_cell_runs():
    board = Board()
    assert board.take_lease(lease())["kernel_id"] is None
    assert board.cell("k1", True, NOW) == ["a"]
    assert board.shown("a")["kernel_id"] == "k1"
    assert board.cell("k1", False, NOW) == []


def test_the_kernel_that_asked_is_not_replaced():
    board = Board()
    board.cell("k1", False, NOW)
    assert board.take_lease(lease(kernel_id="k2"))["kernel_id"] == "k2"


def test_a_restarted_kernel_is_the_pages_kernel_no_more():
    board = Board()
    board.cell("k1", True, NOW)
    board.take_lease(lease())
    board.forget_kernel("k1")
    assert board.shown("a")["kernel_id"] is None
    bare = {"id": "k1", "last_cell": None, "busy": False, "notebook": "", "leases": []}
    assert board.kernels(["k1"]) == [bare]


def test_a_lease_is_left_by_the_last_kernel_that_used_it():
    board = Board()
    for each in (lease("mine", kernel_id="k1"), lease("ours", kernel_id="k1"), lease("page")):
        board.take_lease(each)
    for lease_id, kernel in (("mine", "k1"), ("ours", "k1"), ("ours", "k2"), ("page", "k1")):
        board.use(lease_id, kernel)
    assert board.left_by("k1") == ["mine"], "what a page asked for is for the next notebook"
    assert board.left_by("k1") == []
    assert board.left_by("k2") == ["ours"]


def test_a_report_says_which_notebook_a_lease_is_for():
    board = Board()
    board.cell("k1", True, NOW)
    board.take_lease(lease())
    (first, second) = board.kernels(["k1", "k2"], {"k1": "week1/lab.ipynb"})
    assert (first["notebook"], first["leases"]) == ("week1/lab.ipynb", ["a"])
    assert (second["notebook"], second["leases"]) == ("", [])


def test_that_cells_ran_on_the_gpu_outlives_a_restart_and_not_the_kernel():
    board = Board()
    board.turn_sticky("k1", on=True)
    board.forget_kernel("k1")
    board.kernels(["k1"])
    assert board.sticky == {"k1"}
    board.turn_sticky("k1", on=False)
    assert not board.sticky
    board.turn_sticky("k1", on=True)
    board.kernels([])
    assert not board.sticky


def test_a_busy_lease_keeps_the_server_up_to_the_cap():
    board = Board()
    since = (NOW - timedelta(hours=3)).isoformat()
    board.take_lease(lease(verdict="busy", active_since=since))
    assert board.working(NOW, cap=4 * 3600)
    assert not board.working(NOW, cap=2 * 3600)
    board.take_lease(lease(verdict="quiet", active_since=since))
    assert not board.working(NOW, cap=4 * 3600)
