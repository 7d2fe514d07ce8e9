"""Setting time-outs in a text: what is set is read back, and the rest stays as it was written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.policy.document import parse
from gpulease.policy.document.edit import with_time_outs
from gpulease.policy.document.time_outs_section import COUNTED, form
from gpulease.policy.units import format_duration

HEAD = "# ours\npools: {a: {}}\nclasses:\n  g: {pool: a}  # the only one\n"
TEXTS = [
    HEAD,
    HEAD + "time_outs:\n",
    HEAD + "time_outs: {}\n",
    HEAD + "time_outs: {idle: 7m}  # a note\n",
    HEAD + "time_outs:\n  # why\n  idle: 7m  # seven\n  warning: 30s\nclick_runs_cells: false\n",
    "{pools: {a: {}}, classes: {g: {pool: a}}}\n",
    "time_outs:\n    idle: 5m\n" + HEAD,
]
VALUES = st.fixed_dictionaries(
    {},
    optional={
        each.name: st.integers(max(1, int(each.least)), 86400).map(float)
        for each in form()
        if each.name not in COUNTED | {"hard_length", "warning"}
    },
)


@pytest.mark.parametrize("text", TEXTS)
@given(VALUES)
@settings(max_examples=25)
def test_what_is_set_is_read_back_and_the_rest_stays(text: str, values: dict[str, float]) -> None:
    written = {name: format_duration(seconds) for name, seconds in values.items()}
    changed = with_time_outs(text, written)
    before, after = parse(text), parse(changed)
    for field in form():
        wanted = values.get(field.name, getattr(before.time_outs, field.name))
        assert getattr(after.time_outs, field.name) == wanted
    assert (after.pools, after.click_runs_cells) == (before.pools, before.click_runs_cells)
    for comment in ("# ours", "# the only one", "# why", "# seven", "# a note"):
        assert (comment in changed) == (comment in text)


def test_a_value_is_changed_where_it_stands() -> None:
    text = HEAD + "time_outs:\n  idle: 7m  # seven\n"
    assert with_time_outs(text, {"idle": "9m"}) == text.replace("7m", "9m")


def test_every_default_lies_within_its_bounds() -> None:
    assert all(each.least <= each.default <= each.most for each in form())
