from collections.abc import Iterator

import pytest

from tests.pages.stage import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    found = Stage()
    yield found
    found.close()
