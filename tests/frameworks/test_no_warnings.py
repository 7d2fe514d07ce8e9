from __future__ import annotations

import warnings

from gpulease.transfer.torch.loading import unsaid


def warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=2)


def again() -> None:
    warn("shown once")


def test_a_warning_that_the_notebook_made_an_error_of_ends_no_call_of_ours():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = warnings.filters
        with unsaid():
            warn("of a library")
        assert warnings.filters is before


def test_what_was_shown_once_is_not_shown_again():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        again()
        with unsaid():
            warn("of a library")
        again()
    assert [str(each.message) for each in seen] == ["shown once"]


def test_what_we_ignored_is_shown_where_the_notebook_meets_it():
    def library() -> None:
        warn("of a library")

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        with unsaid():
            library()
        library()
    assert [str(each.message) for each in seen] == ["of a library"]
