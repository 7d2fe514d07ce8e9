"""``gpulease admin why`` tells a story: oldest first, each decision with what it was made from."""

from __future__ import annotations

from typing import Any

from gpulease.commands.admin import _story


def made(why: str, source: str, target: str, who: str = "planner", **more: Any) -> dict[str, Any]:
    at = "2026-05-04T14:02:11.123456+00:00"
    base = {"planned": who == "planner", "inputs": [], "note": "", "at": at}
    return {**base, "why": why, "from": source, "to": target, "who": who, **more}


def test_each_decision_stands_with_its_inputs():
    told = _story(
        [
            made("asked", "", "queued", "maria"),
            made("no_capacity", "queued", "queued", inputs=["GPUs of pool t4: 4, free: 0."]),
            made("forced", "active", "draining", "ann", note="It is needed."),
        ]
    )
    assert told.splitlines() == [
        "2026-05-04 14:02:11 UTC  asked -> queued: asked (by maria)",
        "2026-05-04 14:02:11 UTC  queued -> queued: no_capacity (by planner)",
        "    GPUs of pool t4: 4, free: 0.",
        "2026-05-04 14:02:11 UTC  active -> draining: forced (by ann)",
        "    It is needed.",
    ]


def test_a_plan_that_has_gone_is_said_to_have_gone():
    assert "not kept any more" in _story([made("idle", "active", "warned")])
    assert _story([]) == "Nothing was decided about it."
