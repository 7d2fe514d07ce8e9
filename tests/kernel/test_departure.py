"""What a home kernel makes of the end of a drain, before its lease ends."""

from typing import Any

import pytest

from gpulease.kernel.departure import Departure
from gpulease.transfer.api import DrainReport


@pytest.mark.parametrize(
    ("said", "in_order"),
    [
        ({"parked": 2, "lost": []}, True),
        ({"parked": 2, "lost": ["lock"]}, True),
        ({"parked": 0, "lost": ["lock"]}, True),  # it is known: nothing else of its cell is lost
        ({"parked": 0, "lost": []}, False),  # there was nowhere to park
    ],
)
def test_an_end_is_in_order_where_the_fate_of_each_value_is_known(
    said: dict[str, Any], in_order: bool
) -> None:
    link: Any = None
    departure = Departure(link, link, link)
    departure.drained = DrainReport(done=False)
    departure.parked({"push": "parked", **said})
    assert departure.in_order is in_order
    assert departure.lost == tuple(said["lost"])
