"""How the suite is spread over the workers of ``make test``.

Tests that share what is slow to start stay together, and long ones go to a worker first, so that no
worker is left alone with one at the end.  A unit is one module, except where it says otherwise
here; its tests run in order on one worker.
"""

from __future__ import annotations

from functools import cache
from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

#: Modules that share one running demo (``end_to_end/conftest.py``).
SHARED_DEMO = frozenset(
    f"tests/end_to_end/test_{name}.py"
    for name in ("admin", "interrupted", "kernels", "live_pages", "queue_and_faults", "reclaim")
)
#: Ends the shared demo, so it comes after all that use it.
ENDS_DEMO = "tests/end_to_end/test_interrupted.py"
#: Modules that share another one (``browser/conftest.py``).
BROWSER_DEMO = frozenset(f"tests/browser/test_{name}.py" for name in ("round", "teaching"))
#: Thousands of examples, computed without a pause.
EXAMPLES = "tests/policy/test_plan_properties.py"
#: Modules whose tests are long and share nothing.
EACH_ALONE = frozenset(
    {"tests/end_to_end/test_check.py", "tests/end_to_end/test_ending.py", EXAMPLES}
)

#: What takes longest, the longest first: modules, then rooms.
LONG = (
    "tests/end_to_end/test_queue_and_faults.py",
    *sorted(SHARED_DEMO - {ENDS_DEMO}),
    ENDS_DEMO,
    "tests/end_to_end/test_check.py",
    "tests/browser/test_lab.py",
    *sorted(BROWSER_DEMO),
    "tests/kernel/test_lease.py",
    "tests/helm_values/test_install_page.py",
    EXAMPLES,
    *(f"tests/{room}" for room in ("end_to_end", "hub", "lab", "service")),
    *(f"tests/{room}" for room in ("kernel", "companion", "browser", "transfer", "store")),
    *(f"tests/cluster/test_{name}.py" for name in ("faults", "internal_ssl", "kueue", "chart")),
    *(f"tests/cluster/test_{name}.py" for name in ("files", "hard_end", "many_leases", "upgrade")),
)


def unit_of(nodeid: str) -> str:
    """Return the name of the unit that a test belongs to."""
    module = nodeid.partition("::")[0]
    if module in SHARED_DEMO:
        return "shared demo"
    if module in BROWSER_DEMO:
        return "browser demo"
    return nodeid if module in EACH_ALONE else module


def turn_of(nodeid: str) -> int:
    """Return when a test's unit is handed out: lower is sooner."""
    return _turn_of_module(nodeid.partition("::")[0])


@cache
def _turn_of_module(module: str) -> int:
    path = PurePosixPath(module)
    return next((n for n, name in enumerate(LONG) if path.is_relative_to(name)), len(LONG))


class ByUnit(LoadScopeScheduling):
    """Hands out whole units, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
