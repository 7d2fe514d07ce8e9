"""A value that an option cannot have: refused by the option's own name."""

from __future__ import annotations

import pytest

from gpulease.errors import GPULeaseError
from gpulease.service.app import GPULeaseService
from gpulease.service.option_values import size_option


@pytest.mark.parametrize(
    "given",
    [{"gpu_memory": "much"}, {"park_limit": "some"}, {"service_url": "ftp://127.0.0.1:1"}],
    ids=str,
)
def test_the_option_that_is_wrong_is_named(given: dict[str, str]) -> None:
    ((name, value),) = given.items()
    with pytest.raises(GPULeaseError) as refused:
        GPULeaseService(**given).options()
    assert refused.value.reason == "bad_option"
    assert refused.value.numbers == {"option": name}
    assert refused.value.sentence == f"{name} is {value!r}."


def test_a_size_is_read_in_bytes() -> None:
    assert size_option("park_limit", "2GiB") == 2 * 1024**3
