"""The frameworks' packages find what they need in their own pins and in the environment of tests.

Whoever develops has more (the extra ``check``), so only this shows that something is missing.
"""

from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PINS = Path(__file__).parents[2] / "constraints-frameworks.txt"
#: For GPUs, and for parts of the frameworks that no test uses.
LEFT_OUT = {
    *("aiofiles", "cuda-bindings", "cuda-toolkit", "etils", "hf-xet", "humanize"),
    *(
        "nvidia-cuda-cccl",
        "nvidia-cusolver",
        "nvidia-nvtx",
        "orbax-checkpoint",
        "pytorch-lightning",
    ),
    *("setuptools", "tensorstore", "triton"),
}


def needs(name: str, extras: frozenset[str] = frozenset()) -> list[Requirement]:
    """Return what a package asks for here, with these extras."""
    found = map(Requirement, distribution(name).requires or ())
    wanted = extras or {""}
    return [
        each
        for each in found
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in wanted)
    ]


def closure(name: str, extra: str) -> set[str]:
    """Return all that a package's extra installs, and what that needs."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(name, frozenset({extra}))]
    while waiting:
        each = waiting.pop()
        if each not in seen:
            seen.add(each)
            waiting += [
                (str(canonicalize_name(found.name)), frozenset(found.extras))
                for found in needs(*each)
            ]
    return {found for found, _ in seen}


def test_the_pins_lack_nothing_that_only_developers_have() -> None:
    lines = PINS.read_text().splitlines()
    pinned = {canonicalize_name(line.split("==")[0]) for line in lines if "==" in line}
    there = pinned | closure("gpulease", "test")
    asked = {canonicalize_name(need.name) for name in pinned for need in needs(name)}
    assert asked - there <= LEFT_OUT
