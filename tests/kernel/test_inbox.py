"""The hand-over to the main thread: nothing is left lying, and nobody is woken in vain."""

import threading
import time

from gpulease.kernel.inbox import Inbox


class Loop:
    """Counts how often it was asked to look into the inbox."""

    def __init__(self) -> None:
        self.asked = 0

    def wake(self) -> None:
        self.asked += 1


def test_the_loop_is_woken_for_what_comes_between_cells() -> None:
    loop, done = Loop(), []
    inbox = Inbox(loop.wake)
    inbox.put(lambda: done.append(1))
    assert loop.asked == 1
    inbox.run_ready()
    assert done == [1]


def test_what_comes_while_the_main_thread_waits_is_run_there() -> None:
    loop, done = Loop(), []
    inbox = Inbox(loop.wake)
    other = threading.Thread(target=lambda: [inbox.put(lambda: done.append(1)) for _ in range(9)])
    other.start()
    assert inbox.wait_for(lambda: len(done) == 9, time.monotonic() + 30)
    other.join()
    asked = loop.asked
    inbox.put(lambda: done.append(1))
    assert loop.asked == asked + 1, "it waits no more"


def test_what_a_wait_leaves_behind_wakes_the_loop() -> None:
    loop, done = Loop(), []
    inbox = Inbox(loop.wake)

    def first() -> None:
        done.append(1)
        inbox.put(lambda: done.append(2))  # comes while the wait is about to end

    inbox.put(first)
    before = loop.asked
    assert inbox.wait_for(lambda: bool(done))
    assert done == [1]
    assert loop.asked == before + 1
    inbox.run_ready()
    assert done == [1, 2]


def test_a_wait_within_a_wait() -> None:
    loop, done = Loop(), []
    inbox = Inbox(loop.wake)

    def outer() -> None:
        inbox.put(lambda: done.append("inner"))
        assert inbox.wait_for(lambda: "inner" in done)
        inbox.put(lambda: done.append("last"))

    inbox.put(outer)
    before = loop.asked
    assert inbox.wait_for(lambda: "last" in done, time.monotonic() + 30)
    assert loop.asked == before, "the outer one took it"
