"""How long a notebook waits for a companion whose first answer was not seen."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpulease.errors import GPULeaseError
from gpulease.kernel import attach
from gpulease.kernel.execution import Executor


class Asked:
    """Answers the questions after the first ``lost`` ones."""

    def __init__(self, lost: int) -> None:
        self._lost = lost
        self.waited: list[float] = []

    def ask(self, _kind: str, _content: Mapping[str, Any], timeout: float) -> dict[str, Any] | None:
        self.waited.append(timeout)
        return {} if len(self.waited) > self._lost else None


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_lost_first_answer_costs_no_half_second(lost: int) -> None:
    asked = Asked(lost)
    attach.until_answered(cast(Executor, asked))
    assert len(asked.waited) == lost + 1
    assert sum(asked.waited[:-1]) <= 0.15 + 1e-9


def test_a_silent_companion_is_asked_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(10**6)
    monkeypatch.setattr(attach, "time", SimpleNamespace(monotonic=lambda: sum(asked.waited)))
    with pytest.raises(GPULeaseError) as error:
        attach.until_answered(cast(Executor, asked))
    assert error.value.reason == "companion_silent"
    assert len(asked.waited) < 25
    assert max(asked.waited) <= 5.0
