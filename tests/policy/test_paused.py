"""A paused pool: nothing of it is granted, what runs keeps running, who waits keeps their place."""

from dataclasses import replace

from gpulease.policy import document
from gpulease.policy.explanation.explain import explain
from gpulease.policy.model import GPUClass, Pool, Start, Wait
from gpulease.policy.planner import plan
from tests.policy.build import OUTS, active, busy, cards, policy, request, snapshot

PAUSED = policy(pools=(Pool("cards", paused=True), Pool("slices")))


def test_nothing_is_granted_and_nobody_is_asked_to_leave() -> None:
    held = active(1, "GPU-0")
    view = snapshot([held, request(2)], 2, {held.id: busy()}, policy=PAUSED)
    assert plan(view) == [Wait("r2", "paused")]
    known = replace(request(2), reason="paused")
    assert plan(snapshot([held, known], 2, {held.id: busy()}, policy=PAUSED)) == []
    said = explain(known, PAUSED)
    assert "grant no GPUs of this kind" in said.sentence


def test_it_is_granted_again_in_the_old_order() -> None:
    waiting = [request(n, reason="paused") for n in (2, 1)]
    first, *_ = plan(snapshot(waiting, 1))
    assert (type(first), first.lease_id) == (Start, "r1")


def test_no_other_class_is_served_by_a_paused_pool() -> None:
    full = (
        GPUClass("t4", "cards", max_count=4, time_outs=OUTS),
        GPUClass("slice", "slices", time_outs=OUTS, fallback=("t4",)),
    )
    view = snapshot([request(1, gpu_class="slice")], cards(2), policy=replace(PAUSED, classes=full))
    assert not [each for each in plan(view) if isinstance(each, Start)]
    served = plan(replace(view, policy=replace(policy(), classes=full)))
    assert [type(each) for each in served] == [Start], "where it is not paused, it is"


def test_it_is_written_as_it_is_read() -> None:
    text = "pools: {a: {paused: true}}\nclasses: {g: {pool: a}}\n"
    read = document.parse(text, 1)
    assert read.pools == (Pool("a", paused=True),)
    assert document.parse(document.dump(read), 1).pools == read.pools
    assert document.check("pools: {a: {paused: 3}}\nclasses: {g: {pool: a}}\n")
