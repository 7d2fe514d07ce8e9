import pytest

from gpulease.providers.kubernetes.api.client import Limiter


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_burst_goes_at_once_and_the_rest_at_the_rate():
    limiter = Limiter(10.0, burst=3, clock=Clock())
    assert [round(limiter.take(), 3) for _ in range(6)] == [0, 0, 0, 0.1, 0.2, 0.3]


def test_quiet_time_fills_up_to_the_burst_only():
    clock = Clock()
    limiter = Limiter(10.0, burst=2, clock=clock)
    limiter.take(), limiter.take()
    clock.now += 3600
    assert [round(limiter.take(), 3) for _ in range(3)] == [0, 0, 0.1]


def test_the_rate_holds_over_a_long_time():
    clock = Clock()
    limiter = Limiter(50.0, clock=clock)
    went = [clock.now + limiter.take() for _ in range(800)]
    assert went == sorted(went)
    assert went[-1] - 100.0 == pytest.approx((800 - 50) / 50, abs=0.05)


def test_a_rate_of_nothing_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        Limiter(0)
