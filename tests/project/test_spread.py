"""The suite is spread over workers by units: what is named is there, what is shared stays whole."""

from __future__ import annotations

from pathlib import Path

from tests.spread import EACH_ALONE, ENDS_DEMO, LONG, SHARED_DEMO, turn_of, unit_of

ROOT = Path(__file__).parents[2]


def test_what_is_named_is_there() -> None:
    assert not [name for name in {*LONG, *SHARED_DEMO, *EACH_ALONE} if not (ROOT / name).exists()]


def test_modules_of_one_demo_are_one_unit_that_comes_first() -> None:
    tests = [f"{module}::test_something[{n}]" for module in SHARED_DEMO for n in "ab"]
    assert {unit_of(test) for test in tests} == {"shared demo"}
    others = {
        f"tests/{name}::test" for name in ("browser/test_round.py", "end_to_end/test_check.py")
    }
    assert max(map(turn_of, tests)) < min(map(turn_of, others))


def test_what_ends_the_shared_demo_is_the_last_to_have_it() -> None:
    assert max(SHARED_DEMO, key=lambda module: turn_of(f"{module}::test")) == ENDS_DEMO


def test_every_module_of_the_shared_demo_takes_it() -> None:
    for module in SHARED_DEMO:
        text = (ROOT / module).read_text()
        assert "demo: RunningDemo" in text or "shared_demo" in text, module
        assert "running_demo(" not in text, module


def test_an_other_module_is_a_unit_and_a_test_with_its_own_demo_too() -> None:
    assert unit_of("tests/policy/test_quarantine.py::test_one") == "tests/policy/test_quarantine.py"
    ending = "tests/end_to_end/test_ending.py::test_nothing_is_left[SIGTERM]"
    assert unit_of(ending) == ending
    assert turn_of(ending) < turn_of("tests/policy/test_quarantine.py::test_one")
