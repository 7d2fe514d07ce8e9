"""What a cell asks for where it says less than its notebook does."""

import pytest

from gpulease.kernel.options import parse_options

OF_A_RUN = "--count 3 --min-count 1 --nodes 1 --for 30m --project phys"


@pytest.mark.parametrize(
    ("cell", "notebook", "asks"),
    [
        ("", OF_A_RUN, OF_A_RUN),
        ("--count 2", OF_A_RUN, "--count 2 --for 30m --project phys"),
        ("--nodes 2", OF_A_RUN, "--nodes 2 --for 30m --project phys"),
        ("--min-count 2", OF_A_RUN, "--count 3 --min-count 2 --nodes 1 --for 30m --project phys"),
        ("--for 1h", OF_A_RUN, OF_A_RUN.replace("30m", "1h")),
        ("", "--class large --at-least 40%", "--at-least 40%"),
        ("--at-least 50%", "--at-least 40%", "--at-least 50%"),
        ("--class other", "--class large --at-least 40%", "--class other"),
    ],
)  # fmt: skip
def test_a_cell_has_its_notebooks_options_where_it_says_nothing(cell, notebook, asks):
    found = parse_options(cell).with_defaults(parse_options(notebook), wait=None)
    assert found == parse_options(asks)


def test_how_long_a_cell_waits_is_its_own_word_first():
    assert parse_options("").with_defaults(parse_options(""), wait=5.0).wait == 5.0
    assert parse_options("--wait 1m").with_defaults(parse_options(""), wait=5.0).wait == 60.0
