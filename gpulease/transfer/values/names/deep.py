"""Room for recursion: pickling follows a chain of objects by calling itself.

Owns the thread with a large stack and the interpreter's recursion limit while it works.  Nobody
else may recurse that deep on a usual stack, so other threads rest meanwhile.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: A chain of about 30,000 instances.  One level of pickling takes some 300 bytes of the stack.
LEVELS = 100_000
_STACK = 256 * 2**20
#: Seconds after which a waiting thread may take its turn; the thread here ends before.
_INTERVAL = 10.0

_one_at_a_time = threading.Lock()


def is_too_deep(error: BaseException) -> bool:
    """Say whether ``error`` is the recursion limit's, told by itself or by a pickler."""
    return isinstance(error, RecursionError) or "deep recursion" in str(error)


def with_room(work: Callable[[], T]) -> T:
    """Return what ``work`` returns, run where recursion may go deep; raises what it raises.

    An interrupt is raised after ``work`` has ended: it reads values that then may change again.
    """
    done: list[T] = []
    failed: list[BaseException] = []

    def body() -> None:
        limit, interval = sys.getrecursionlimit(), sys.getswitchinterval()
        sys.setswitchinterval(_INTERVAL)
        sys.setrecursionlimit(max(limit, LEVELS))
        try:
            done.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            failed.append(error)
        finally:
            sys.setrecursionlimit(limit)
            sys.setswitchinterval(interval)

    with _one_at_a_time:
        interrupt = _run(body)
    if interrupt is not None:
        raise interrupt
    if failed:
        raise failed[0]
    return done[0]


def _run(body: Callable[[], None]) -> KeyboardInterrupt | None:
    usual = threading.stack_size(_STACK)
    try:
        thread = threading.Thread(target=body, name="gpulease-deep", daemon=True)
        thread.start()
    except RuntimeError as error:  # no memory for the stack
        raise RecursionError("no room for a deep stack") from error
    finally:
        threading.stack_size(usual)
    interrupt = None
    while thread.is_alive():
        try:
            thread.join()
        except KeyboardInterrupt as error:
            interrupt = error
    return interrupt
