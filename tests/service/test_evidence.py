"""What counts as use: the device and the life in the lease together, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpulease.gpus.base import Sample, Tenancy
from gpulease.policy.document import default_document
from gpulease.policy.idleness import idle_case
from gpulease.policy.model import (
    Device,
    Evidence,
    EvidenceLevel,
    Lease,
    LeaseState,
    TimeOuts,
    Verdict,
)
from gpulease.service.control_loop.evidence import EvidenceCollector

START = datetime(2026, 1, 1, tzinfo=UTC)
OUTS = TimeOuts(idle=60, quiet=120, warm_up=0)
POLICY = default_document([Device("G", "cards")], OUTS)


def lease(**more: Any) -> Lease:
    made = Lease(
        "L", "stu", "", "cards", 1, (START, 1), START,
        state=LeaseState.ACTIVE, active_since=START, devices=("G",), attempt=1,
    )  # fmt: skip
    return replace(made, **more)


def test_only_a_simulated_devices_use_ends_at_busy_max() -> None:
    policy = default_document([Device("G", "cards")], replace(OUTS, busy_max=50))
    for simulated, verdict in (({"G"}, Verdict.QUIET), (set(), Verdict.BUSY)):
        watch, found = EvidenceCollector(), None
        for n in range(120):
            now = START + timedelta(seconds=n)
            watch.sampled([Sample("G", now, 0.9)])
            life = {"at": now.isoformat(), "cells": 0, "threads": 0, "processes": 0,
                    "tasks": 1, "use": 0.9, "transfers": False}  # fmt: skip
            watch.hear("L", [life], now)  # type: ignore[list-item]
            found = watch.judge([lease()], policy, now, simulated)
        assert found is not None
        assert found["L"].verdict is verdict


def test_a_service_that_began_again_knows_that_a_lease_was_used() -> None:
    """Else it would protect it for the whole claim time, as one that waits for its first cell."""
    outs = replace(OUTS, idle=20, claim=600)
    policy = default_document([Device("G", "cards")], outs)
    for used, why in ((False, ""), (True, "idle")):
        watch = EvidenceCollector()  # of a new process
        found = run(60, lambda _, used=used: (0.0, {"used": used}), policy, watch)  # type: ignore[misc]
        now = START + timedelta(seconds=60)
        claimed = lease(claimed=START)
        assert idle_case(claimed, found, None, now, outs, under_pressure=False) == why


Second = Callable[[int], tuple[float | None, dict[str, Any] | None]]


def run(
    seconds: int, second: Second, policy: Any = POLICY, watch: EvidenceCollector | None = None
) -> Evidence:
    """Live through so many seconds; ``second`` says the device's use and the life of each."""
    watch = watch or EvidenceCollector()
    found = watch.judge([lease()], policy, START)
    for n in range(1, seconds + 1):
        now = START + timedelta(seconds=n)
        use, life = second(n)
        watch.sampled([Sample("G", now, use, gap="" if use is not None else "timeout")])
        if life is not None:
            activity = {
                "at": now.isoformat(), "cells": 0, "threads": 0, "processes": 0,
                "use": 0.0, "transfers": False, **life,
            }  # fmt: skip
            watch.hear("L", [activity], now)  # type: ignore[list-item]
        found = watch.judge([lease()], policy, now)
    return found["L"]


def keeps_what_a_thread_computes(watch: EvidenceCollector) -> None:
    """A computing thread left by a finished cell keeps the lease."""
    seen = run(90, lambda _: (0.9, {"threads": 1}), watch=watch)
    assert (seen.verdict, seen.idle_for) == (Verdict.BUSY, 0)


def counts_from_when_the_thread_slept(watch: EvidenceCollector) -> None:
    """The same thread sleeping does not: idleness counts from the end of its work."""
    seen = run(140, lambda n: (0.9 if n <= 60 else 0.0, {"threads": 1}), watch=watch)
    assert seen.verdict is Verdict.IDLE
    assert 60 < seen.idle_for < 80


def takes_a_sleeping_cell_for_quiet(watch: EvidenceCollector) -> None:
    """A running cell that sleeps uses nothing, and no idle time counts."""
    seen = run(90, lambda _: (0.0, {"cells": 1}), watch=watch)
    assert (seen.verdict, seen.idle_for) == (Verdict.QUIET, 0)
    assert seen.quiet_for > 60


def counts_no_write_behind(watch: EvidenceCollector) -> None:
    """Bytes on their way home after the work, with no cell, do not postpone reclaim."""

    def second(n: int) -> tuple[float, dict[str, Any]]:
        return (0.9, {"threads": 1}) if n <= 60 else (0.5, {"transfers": True})

    seen = run(140, second, watch=watch)
    assert seen.verdict is Verdict.IDLE
    assert 60 < seen.idle_for < 80


def holds_everything_in_a_gap(watch: EvidenceCollector) -> None:
    """Without data a lease is neither idle nor quiet."""
    seen = run(300, lambda _: (None, {}), watch=watch)
    assert (seen.verdict, seen.idle_for, seen.quiet_for) == (Verdict.UNKNOWN, 0, 0)


PROMISES = (
    keeps_what_a_thread_computes,
    counts_from_when_the_thread_slept,
    takes_a_sleeping_cell_for_quiet,
    counts_no_write_behind,
    holds_everything_in_a_gap,
)


class ACellRuns(EvidenceCollector):
    """A probe that knows only whether a cell runs."""

    def __init__(self) -> None:
        super().__init__()
        self._cells = False

    def hear(self, lease_id: str, samples: Iterable[Any], now: datetime | None = None) -> None:
        said = list(samples)
        self._cells = any(sample["cells"] for sample in said)
        blind = {"threads": 0, "processes": 0, "use": 0.0, "transfers": False}
        super().hear(lease_id, [{**sample, **blind} for sample in said], now)

    def sampled(self, samples: Sequence[Sample]) -> None:
        use = 0.9 if self._cells else 0.0
        super().sampled([Sample(sample.uuid, sample.at, use) for sample in samples])


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_what_counts_as_use(promise: Callable[[EvidenceCollector], None]) -> None:
    promise(EvidenceCollector())


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_no_promise_is_kept_by_a_probe_that_sees_cells_only(
    promise: Callable[[EvidenceCollector], None],
) -> None:
    with pytest.raises(AssertionError):
        promise(ACellRuns())


def test_our_own_transfers_beside_a_sleeping_thread_are_no_use() -> None:
    seen = run(90, lambda _: (0.5, {"transfers": True, "threads": 1}))
    assert seen.verdict is Verdict.IDLE


def test_a_thread_that_computes_while_we_transfer_is_in_use() -> None:
    seen = run(90, lambda _: (0.5, {"transfers": True, "threads": 1, "use": 0.6}))
    assert seen.verdict is Verdict.BUSY


def test_a_silent_supervisor_holds_everything() -> None:
    seen = run(300, lambda _: (0.0, None))
    assert (seen.verdict, seen.idle_for) == (Verdict.UNKNOWN, 0)


def test_a_burst_once_in_a_while_is_use() -> None:
    seen = run(90, lambda n: (0.9 if n % 8 == 0 else 0.0, {"cells": 1}))
    assert seen.verdict is Verdict.BUSY


def test_somebody_elses_use_protects_nobody_at_level_cells() -> None:
    pools = tuple(replace(pool, evidence=EvidenceLevel.CELLS) for pool in POLICY.pools)
    seen = run(90, lambda _: (0.9, {"threads": 1}), replace(POLICY, pools=pools))
    assert seen.verdict is Verdict.IDLE


def test_a_new_attempt_begins_with_nothing_known() -> None:
    watch = EvidenceCollector()
    assert run(90, lambda _: (0.0, {}), watch=watch).idle_for > 60
    now = START + timedelta(seconds=91)
    found = watch.judge([lease(attempt=2)], POLICY, now)["L"]
    assert (found.verdict, found.idle_for) == (Verdict.UNKNOWN, 0)


@pytest.mark.parametrize("state", [LeaseState.QUEUED, LeaseState.STARTING, LeaseState.ENDED])
def test_what_does_not_run_is_not_watched(state: LeaseState) -> None:
    watch = EvidenceCollector()
    assert watch.judge([lease(state=state)], POLICY, START) == {}


def test_a_supervisor_whose_clock_is_ahead_does_not_stay_busy() -> None:
    watch = EvidenceCollector()
    watch.judge([lease()], POLICY, START)
    far = (START + timedelta(hours=1)).isoformat()
    activity = {"at": far, "cells": 1, "threads": 0, "processes": 0, "use": 1, "transfers": False}
    watch.hear("L", [activity], START)  # type: ignore[list-item]
    watch.sampled([Sample("G", START, 0.9)])
    seen = run(40, lambda _: (0.0, {}), watch=watch)
    assert seen.verdict is Verdict.IDLE


def shares(level: EvidenceLevel, use: float, cells: int) -> Evidence:
    """Live through a minute whose samples could be attributed at ``level`` only."""
    watch = EvidenceCollector()
    found = watch.judge([lease()], POLICY, START)
    for n in range(1, 61):
        now = START + timedelta(seconds=n)
        watch.sampled([Sample("G", now, use, level=level)])
        life = {"at": now.isoformat(), "cells": cells, "threads": 1, "processes": 0,
                "tasks": 0, "use": 0.9, "transfers": False}  # fmt: skip
        watch.hear("L", [life], now)  # type: ignore[list-item]
        found = watch.judge([lease()], POLICY, now)
    return found["L"]


def test_use_that_may_be_somebody_elses_protects_nobody() -> None:
    assert shares(EvidenceLevel.PROCESS, 0.9, cells=0).verdict is Verdict.BUSY
    assert shares(EvidenceLevel.CELLS, 0.9, cells=0).verdict is Verdict.IDLE
    assert shares(EvidenceLevel.CELLS, 0.9, cells=0).idle_for == 60
    assert shares(EvidenceLevel.CELLS, 0.9, cells=1).verdict is Verdict.BUSY
    assert shares(EvidenceLevel.CELLS, 0.0, cells=1).verdict is Verdict.QUIET


def test_use_that_was_seen_to_be_its_own_protects_beside_doubtful_seconds() -> None:
    watch = EvidenceCollector()
    found = watch.judge([lease()], POLICY, START)
    for n in range(1, 61):
        now = START + timedelta(seconds=n)
        doubt = n % 5 != 0
        level = EvidenceLevel.CELLS if doubt else EvidenceLevel.PROCESS
        watch.sampled([Sample("G", now, 0.5, level=level)])
        life = {"at": now.isoformat(), "cells": 0, "threads": 1, "processes": 0,
                "tasks": 0, "use": 0.0, "transfers": False}  # fmt: skip
        watch.hear("L", [life], now)  # type: ignore[list-item]
        found = watch.judge([lease()], POLICY, now)
        assert n < 5 or found["L"].verdict is Verdict.BUSY


def test_nothing_is_kept_of_leases_and_devices_that_have_gone() -> None:
    """Nodes come and go for months: what was known of each must not stay for ever."""
    watch = EvidenceCollector()
    for n in range(300):
        now = START + timedelta(minutes=n)
        level = EvidenceLevel.CELLS if n % 2 else EvidenceLevel.PROCESS
        watch.sampled([
            Sample(f"G{n}", now, 0.9, level=level), Sample(f"H{n}", now, None, gap="no_driver"),
        ])  # fmt: skip
        each = lease(id=f"L{n}", devices=(f"G{n}",))
        watch.hear(each.id, [{"at": now.isoformat(), "cells": 1, "threads": 0, "processes": 0,
                              "use": 0.9, "transfers": True, "tasks": 0}], now)  # fmt: skip
        watch.judge([each], POLICY, now)
    kept = {name: len(value) for name, value in vars(watch).items() if hasattr(value, "__len__")}
    assert all(number <= 25 for number in kept.values()), kept


def test_memory_beyond_a_share_is_told_and_since_when_it_harms() -> None:
    """Two leases with 4 of 16 GiB each: one takes 13, and later gives some back."""
    gib, watch = 2**30, EvidenceCollector()
    policy = replace(POLICY, classes=(replace(POLICY.classes[0], memory=4 * gib),))
    leases = [lease(), lease(id="M", devices=("H",))]

    def look(n: int, used: int | None) -> Evidence:
        now = START + timedelta(seconds=n)
        if used is not None:
            left = (15 - used) * gib
            first = Sample("G", now, 0.0, tenancy=Tenancy("card", used * gib, left))
            watch.sampled([first, Sample("H", now, 0.0, tenancy=Tenancy("card", gib, left))])
        found = watch.judge(leases, policy, now)
        assert (found["M"].taken, found["M"].harms_since) == (0, None)
        return found["L"]

    assert (look(1, 4).taken, look(2, 6).harms_since) == (0, None)
    assert look(3, 6).taken == 6 * gib
    assert [look(n, 13).harms_since for n in (4, 5)] == [START + timedelta(seconds=4)] * 2
    assert look(6, None).harms_since == START + timedelta(seconds=4)  # the next word is awaited
    assert (look(7, 6).harms_since, look(8, 13).harms_since) == (None, START + timedelta(seconds=8))
    assert look(30, None).taken == 0  # nothing is known of it any more


GIB = 2**30


def _with(*memory: int | None, at: float = 0.0) -> EvidenceCollector:
    watch = EvidenceCollector()
    now = START + timedelta(seconds=at)
    watch.sampled([Sample(f"G{n}", now, 0.5, each) for n, each in enumerate(memory)])
    return watch


@pytest.mark.parametrize(
    ("memory", "devices", "wanted"),
    [
        ((3 * GIB + 5,), ("G0",), 3 * GIB),  # in whole pieces
        ((GIB, 2 * GIB), ("G0", "G1"), 3 * GIB),
        ((0,), ("G0",), 0),
        ((GIB, None), ("G0", "G1"), None),  # of one it is not known
        ((GIB,), (), None),
        ((None,), ("G0",), None),
    ],
)
def test_a_leases_memory_is_what_all_its_devices_tell(memory, devices, wanted) -> None:
    assert _with(*memory).memory_used(lease(devices=devices)) == wanted


def test_memory_is_not_known_before_and_after_a_lease_runs_and_once_nobody_tells() -> None:
    watch = _with(GIB)
    mine = lease(devices=("G0",))
    for state in (LeaseState.STARTING, LeaseState.ENDED):
        assert watch.memory_used(replace(mine, state=state)) is None
    watch.judge([mine], POLICY, START + timedelta(seconds=5))
    assert watch.memory_used(mine) == GIB
    watch.judge([mine], POLICY, START + timedelta(minutes=1))
    assert watch.memory_used(mine) is None
