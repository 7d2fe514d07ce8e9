"""Works a person's repetition out in a process of its own, which is ended when it takes too long.

dateutil looks for the next date without a bound, and a thread that it keeps busy cannot be stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar import Calendar, Closure, Expanded, codec, expand

#: Seconds that a repetition may take; an ordinary one takes a tenth, most of it Python's start.
LIMIT = 5.0


async def expanded(
    calendar: Calendar, closures: tuple[Closure, ...] = (), *, limit: float = LIMIT
) -> Expanded:
    """Return the occurrences of a calendar.

    Raises:
        GPULeaseError: ``bad_calendar``, also for a repetition that cannot be worked out in time.
    """
    if not calendar.repeat:
        return expand(calendar, closures)
    asked = {
        "calendar": codec.calendar_to_json(calendar),
        "closures": codec.closures_to_json(closures),
    }
    found = await _asked_of_process(json.dumps(asked).encode(), limit)
    if "problem" in found:
        raise GPULeaseError.from_problem(found["problem"])
    return codec.expanded_from_json(found)


async def _asked_of_process(question: bytes, limit: float) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "gpulease.service.reservations.expansion"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={},  # it needs no secret
    )
    try:
        async with asyncio.timeout(limit):
            answer, _ = await process.communicate(question)
    except TimeoutError:
        raise GPULeaseError(
            "bad_calendar",
            "The repetition names no date that could be found in time.",
            next_step="Write a simpler one, such as FREQ=WEEKLY;COUNT=12.",
            status=422,
        ) from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    found: dict[str, Any] = json.loads(answer)
    return found


def main() -> None:
    """Answer the one question that stands on the standard input."""
    asked = json.load(sys.stdin)
    try:
        found = expand(
            codec.calendar_from_json(asked["calendar"]),
            codec.closures_from_json(asked["closures"]),
        )
        answer = codec.expanded_to_json(found)
    except GPULeaseError as error:
        answer = {"problem": error.to_problem()}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
