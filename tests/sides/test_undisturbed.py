"""A commit is not disturbed: one at a time, and no other thread gets in between."""

import sys
import threading
import time

import pytest

from gpulease.sides.undisturbed import undisturbed
from tests.helpers import wait_for


@pytest.fixture
def computing():
    """A thread that never rests; what it counts is returned."""
    counted = [0]
    stop = threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    yield counted
    stop.set()
    thread.join()


def _compute(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_a_computing_thread_neither_gets_in_between_nor_holds_a_commit_up(computing):
    quiet, tries = 0, 0
    while not quiet and tries < 20:  # a busy machine may take the processor away at any point
        tries += 1
        last = computing[0]
        wait_for(lambda last=last: computing[0] > last)
        _compute(0.002)  # it has had its turn, and waits for the next
        with undisturbed():
            before = computing[0]
            _compute(0.03)  # longer than the usual interval
            quiet += computing[0] == before
    assert quiet, "it got in between"
    assert sys.getswitchinterval() == pytest.approx(0.005)


def test_a_second_commit_of_the_process_waits():
    usual = sys.getswitchinterval()
    inside, go_on, second = threading.Event(), threading.Event(), threading.Event()

    def first():
        with undisturbed():
            inside.set()
            go_on.wait(30)

    def other():
        with undisturbed(), undisturbed():  # the same thread may enter it again
            second.set()

    threads = [threading.Thread(target=first), threading.Thread(target=other)]
    threads[0].start()
    assert inside.wait(30)
    threads[1].start()
    assert not second.wait(0.2)
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert second.is_set()
    assert sys.getswitchinterval() == usual
