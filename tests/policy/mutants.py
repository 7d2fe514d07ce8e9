"""Broken rules, and the tests that are to find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings


def without_shrinking(test: Callable[..., Any], patch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a test that ends with the first example that it fails with, however large."""
    used = "_hypothesis_internal_use_settings"  # where hypothesis keeps the settings of a test
    if hasattr(test, used):
        first = settings(
            getattr(test, used),
            phases=[Phase.generate],
            report_multiple_bugs=False,
            database=None,
        )
        patch.setattr(test, used, first)
    return test
