"""Short ways to write traces, policies and replays."""

from math import inf

from gpulease.policy.model import Device, GPUClass, PolicyDocument, Pool, TimeOuts
from gpulease.simulate.trace import MONDAY, Burst, Session, Trace

OUTS = TimeOuts()


def policy(outs: TimeOuts = OUTS) -> PolicyDocument:
    classes = (GPUClass("t4", "cards", "T4", max_count=4, time_outs=outs),)
    return PolicyDocument(1, (Pool("cards"),), classes, "t4", outs)


def cards(number: int, each: int = 4) -> tuple[Device, ...]:
    return tuple(Device(f"GPU-{n:03}", "cards", node=f"n{n // each}") for n in range(number))


def session(
    name: str,
    start: float,
    *bursts: tuple[float, float],
    count: int = 1,
    linger: float = 0.0,
    patience: float = inf,
    project: str = "",
) -> Session:
    """A session of (think, busy) pairs."""
    return Session(
        name,
        f"user-{name}",
        start,
        tuple(Burst(think, busy) for think, busy in bursts),
        project=project,
        count=count,
        linger=linger,
        patience=patience,
    )


def trace(*sessions: Session, length: float = 7200.0) -> Trace:
    return Trace(MONDAY, length, sessions)
