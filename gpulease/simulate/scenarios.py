"""Invented traces: a course with labs and deadlines, a research group, and both.

The assumptions about people are seeded: the same seed gives the same trace.  Lengths of GPU work
follow the one-GPU events of Adobe's notebook trace of June 2021 (median 3 min, 75 % within 5, 95 %
within 24; published at 60 s resolution with 3 min as its floor, so what is shorter is invented);
time to think is heavy-tailed, a log-normal, because nothing better was published.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf, log
from random import Random
from typing import Final

from gpulease.simulate.trace import MONDAY, Burst, Session, Trace

DAY = 86400.0
HOUR = 3600.0
MINUTE = 60.0


def _log_normal(random: Random, median: float, sigma: float, most: float = inf) -> float:
    return min(most, random.lognormvariate(log(median), sigma))


def _bursts(
    random: Random,
    length: float,
    *,
    busy: tuple[float, float],
    think: tuple[float, float],
) -> tuple[Burst, ...]:
    """Return bursts that fill so many seconds; ``busy`` and ``think`` are median and sigma."""
    found: list[Burst] = []
    at = 0.0
    while at < length:
        pause = _log_normal(random, *think, most=4 * HOUR)
        work = _log_normal(random, *busy, most=24 * HOUR)
        if found and at + pause > length:
            break
        found.append(Burst(pause, work))
        at += pause + work
    return tuple(found)


def course(seed: int, *, weeks: float = 4, students: int = 500) -> Trace:
    """A course of 500: a lab of an hour and a half each week in groups of 25, homework towards a
    deadline on Sunday night.
    """
    random = Random(f"course {seed}")
    sessions: list[Session] = []
    week = 0
    while week < weeks:
        for student in range(students):
            group = student // 25
            day, slot = group % 5, group // 5 % 4
            start = week * 7 * DAY + day * DAY + (8 + 2 * slot) * HOUR
            if random.random() < 0.85:
                late = random.expovariate(1 / (4 * MINUTE))
                sessions.append(_lab(random, student, week, start + late, 90 * MINUTE - late))
            sessions += [
                _at_home(random, student, week, number) for number in range(_homework(random))
            ]
        week += 1
    return _trace(sessions, weeks * 7 * DAY)


def _homework(random: Random) -> int:
    return random.choices([0, 1, 2, 3], [0.3, 0.4, 0.2, 0.1])[0]


def _lab(random: Random, student: int, week: int, start: float, length: float) -> Session:
    return Session(
        id=f"lab-{week}-{student}",
        user=f"student{student}",
        start=start,
        bursts=_bursts(random, max(length, 600.0), busy=(40.0, 1.1), think=(150.0, 1.0)),
        project="course",
        linger=random.expovariate(1 / (10 * MINUTE)),
        patience=45 * MINUTE,
    )


def _at_home(random: Random, student: int, week: int, number: int) -> Session:
    """Return a session of homework: more and more of them towards Sunday night."""
    before = min(random.expovariate(1 / (1.2 * DAY)), 6 * DAY)
    day = week * 7 * DAY + 7 * DAY - before
    hour = (day % DAY) / HOUR
    if hour < 7:  # hardly anybody works at night
        day += (8 - hour) * HOUR
    return Session(
        id=f"home-{week}-{student}-{number}",
        user=f"student{student}",
        start=day,
        bursts=_bursts(
            random, random.uniform(20, 120) * MINUTE, busy=(90.0, 1.2), think=(240.0, 1.2)
        ),
        project="course",
        linger=random.expovariate(1 / (40 * MINUTE)),
        patience=2 * HOUR,
    )


def research(seed: int, *, weeks: float = 4, people: int = 30) -> Trace:
    """A research group of 30: long days, long runs, notebooks that are left open."""
    random = Random(f"research {seed}")
    sessions: list[Session] = []
    for person in range(people):
        for day in range(ceil(weeks * 7)):
            weekend = day % 7 >= 5
            if random.random() > (0.15 if weekend else 0.7):
                continue
            start = day * DAY + random.gauss(10, 1.5) * HOUR
            length = random.uniform(2, 9) * HOUR
            sessions.append(
                Session(
                    id=f"research-{day}-{person}",
                    user=f"scholar{person}",
                    start=max(0.0, start),
                    bursts=_bursts(random, length, busy=(200.0, 1.4), think=(500.0, 1.3)),
                    project=f"lab{person % 3}",
                    linger=random.expovariate(1 / (5 * HOUR)),
                )
            )
    return _trace(sessions, weeks * 7 * DAY)


def mix(seed: int, *, weeks: float = 4) -> Trace:
    """A campus: a course of 200 beside a research group of 20."""
    one, other = course(seed, weeks=weeks, students=200), research(seed, weeks=weeks, people=20)
    return _trace([*one.sessions, *other.sessions], weeks * 7 * DAY)


#: name -> (makes it of a seed, GPUs that make it neither empty nor hopeless)
SCENARIOS: Final[dict[str, tuple[Callable[..., Trace], int]]] = {
    "course": (course, 14),
    "research": (research, 8),
    "mix": (mix, 12),
}


def _trace(sessions: list[Session], length: float) -> Trace:
    inside = [each for each in sessions if each.start < length]
    inside.sort(key=lambda session: (session.start, session.id))
    return Trace(MONDAY, length, tuple(inside))
