"""A state machine over service, store and provider: whatever fails, nothing is granted twice."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.service.whole import NUMBER, Whole

users = st.sampled_from(["ann", "bob", "cem", "dan", "eve"])
devices = st.integers(0, NUMBER - 1)
which = st.integers(0, 9)
calls = st.sampled_from(["devices", "observe", "start", "stop"])


class Life(RuleBasedStateMachine):
    """People ask, keep and return; devices, store, provider and clock misbehave."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="gl-")
        self._runner = asyncio.Runner()
        self.whole = Whole(Path(self._folder.name))
        self._runner.run(self.whole.open())

    @rule(user=users, count=st.sampled_from([1, 1, 2]))
    def ask(self, user: str, count: int) -> None:
        self._runner.run(self.whole.ask(user, count))

    @rule(number=which, word=st.sampled_from(["returned", "kept"]))
    def say(self, number: int, word: str) -> None:
        live = self.whole.ledger.live()
        if live:
            self._runner.run(self.whole.say(live[number % len(live)], word))

    @rule(seconds=st.sampled_from([1, 1, 5, 20, 60, 300]))
    def tick(self, seconds: float) -> None:
        self._runner.run(self.whole.tick(seconds))

    @rule(busy=st.booleans())
    def used_for_a_while(self, busy: bool) -> None:
        for _ in range(4):
            self.whole.connect()
            self.whole.use(busy=busy)
            self._runner.run(self.whole.tick(8))

    @rule()
    def connect(self) -> None:
        self.whole.connect()

    @rule(result=st.sampled_from(["done", "done", "blocked", "parked"]))
    def answer(self, result: str) -> None:
        self.whole.answer(result)

    @rule(number=which)
    def process_dies(self, number: int) -> None:
        running = sorted(self.whole.machines.running)
        if running:
            process = self.whole.machines.running.pop(running[number % len(running)])
            self.whole.links.lost(process.lease_id, process)

    @rule(device=devices)
    def device_lost_or_back(self, device: int) -> None:
        self.whole.machines.lost ^= {f"G{device}"}

    @rule()
    def capacity_flips(self) -> None:
        self.whole.machines.known = not self.whole.machines.known

    @rule(writes=st.integers(0, 5))
    def store_fails(self, writes: int) -> None:
        self.whole.store.failing = writes

    @rule(call=calls)
    def provider_fails_or_works(self, call: str) -> None:
        self.whole.machines.failing ^= {call}

    @rule(seconds=st.sampled_from([-60, -5, 3600]))
    def clock_steps(self, seconds: float) -> None:
        self._runner.run(self.whole.tick(seconds))

    @rule()
    def restart(self) -> None:
        self.whole.machines.failing.clear()
        self._runner.run(self.whole.restart())

    @invariant()
    def holds(self) -> None:
        self.whole.check()

    def teardown(self) -> None:
        try:
            self._runner.run(self.whole.heal())
        finally:
            self._runner.run(self.whole.close())
            self._runner.close()
            self._folder.cleanup()


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(900)
def test_whatever_fails_nothing_is_granted_twice_and_everything_ends() -> None:
    run(examples=4, steps=150)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_the_same_at_length() -> None:
    run(examples=100, steps=300)
