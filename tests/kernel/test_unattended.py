"""What failed beneath a cell has a name of its own in a run, and advice for nobody."""

import pytest

from gpulease.errors import GPULeaseError
from gpulease.kernel.unattended import CompanionDied, GPULost, GPUReclaimed, GPUTimeOver, told_apart


def as_told(error: GPULeaseError, *, unattended: bool) -> GPULeaseError:
    with pytest.raises(GPULeaseError) as told, told_apart(unattended=unattended):
        raise error
    return told.value


def made(kind: type[GPULeaseError], reason: str) -> GPULeaseError:
    return kind(reason, "It is gone.", next_step="Run the cell again.", status=410)


@pytest.mark.parametrize(
    ("kind", "reason", "name"),
    [
        (GPULeaseError, "lease_ended", GPULost),
        (GPULeaseError, "companion_gone", CompanionDied),
        (GPUReclaimed, "reclaimed", GPUReclaimed),
        (GPUTimeOver, "reclaimed", GPUTimeOver),
    ],
)
def test_a_run_is_told_what_failed_and_a_person_what_to_do(
    kind: type[GPULeaseError], reason: str, name: type[GPULeaseError]
) -> None:
    error = made(kind, reason)
    assert as_told(error, unattended=False) is error
    told = as_told(error, unattended=True)
    assert (type(told), str(told), told.reason) == (name, "It is gone.", reason)


def test_what_is_the_notebooks_own_fault_stays_as_it_is() -> None:
    error = made(GPULeaseError, "cannot_move")
    assert as_told(error, unattended=True) is error
