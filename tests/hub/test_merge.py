"""Adding to a configuration keeps what the site has set, in whichever way it has set it."""

import pytest
from traitlets import Dict, List, Set, Unicode
from traitlets.config import Config, Configurable

from gpulease.errors import GPULeaseError
from gpulease.hub import merge


class App(Configurable):
    paths = List(Unicode(), ["default"], config=True)
    entries = Dict({"default": 0}, config=True)
    members = Set(Unicode(), {"default"}, config=True)


def unset(c: Config) -> None:
    pass


def begun(c: Config) -> None:
    c.App.paths.append("site")
    c.App.entries.update({"site": 1})
    c.App.members.add("site")


def whole(c: Config) -> None:
    c.App.paths = ["site"]
    c.App.entries = {"site": 1}
    c.App.members = {"site"}


@pytest.mark.parametrize(
    ("prepare", "items", "first", "entries", "members"),
    [
        (unset, ["default", "x"], ["x", "default"], {"x"}, {"x"}),
        (
            begun,
            ["default", "site", "x"],
            ["x", "default", "site"],
            {"default", "site", "x"},
            {"default", "site", "x"},
        ),
        (whole, ["site", "x"], ["x", "site"], {"site", "x"}, {"site", "x"}),
    ],
    ids=["unset", "begun", "whole"],
)
def test_additions_as_the_application_reads_them(prepare, items, first, entries, members):
    last, before = Config(), Config()
    prepare(last)
    prepare(before)
    merge.add_items(last.App, "paths", ["x"])
    merge.add_entries(last.App, "entries", {"x": 2}, setting="entries")
    merge.add_members(last.App, "members", ["x"])
    merge.add_items(before.App, "paths", ["x"], first=True)

    app = App(config=last)
    assert app.paths == items
    assert set(app.entries) == entries
    assert app.members == members
    assert App(config=before).paths == first


@pytest.mark.parametrize("prepare", [begun, whole])
def test_what_is_there_can_be_read(prepare):
    c = Config()
    prepare(c)
    assert merge.listed(c.App, "paths") == ["site"]
    assert merge.updated(c.App, "entries") == {"site": 1}
    assert merge.updated(c.App, "members") == {"site"}


def test_another_value_under_our_key_is_refused():
    c = Config()
    c.App.entries = {"x": "theirs"}
    with pytest.raises(GPULeaseError, match="another 'x'") as refused:
        merge.add_entries(c.App, "entries", {"x": "ours"}, setting="c.App.entries")
    assert refused.value.reason == "hub_config_conflict"
    assert c.App.entries == {"x": "theirs"}


def test_the_same_value_under_our_key_is_fine():
    c = Config()
    c.App.entries = {"x": "ours"}
    merge.add_entries(c.App, "entries", {"x": "ours"}, setting="c.App.entries")
    assert c.App.entries == {"x": "ours"}
