"""What a spawn changes in a setting is undone, in whatever container the site has put it."""

import os
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import MutableMapping, MutableSequence
from types import MappingProxyType
from typing import NamedTuple

import pytest
from traitlets import Any, HasTraits
from traitlets.config import Config

from gpulease.hub.kubernetes import Settings


class Named(NamedTuple):
    first: object
    second: object = None


class OwnDict(dict):
    def __init__(self, name, **items):
        super().__init__(items)
        self.name = name


class OwnList(list):
    pass


class Spawner(HasTraits):
    setting = Any().tag(config=True)

    def method(self):
        """A setting may be bound to its spawner."""


def change(value):
    """Change a container in every place that can be changed, all the way down."""
    for inner in value.values() if hasattr(value, "values") else value:
        if not isinstance(inner, str | int | None):
            change(inner)
    if isinstance(value, MutableMapping):
        value["leaked"] = 1
    elif isinstance(value, MutableSequence):
        value.append("leaked")
    elif isinstance(value, set):
        value.add("leaked")


@pytest.mark.parametrize(
    "make",
    [
        lambda inner: {"a": inner},
        lambda inner: OrderedDict(a=inner),
        lambda inner: defaultdict(list, a=inner),
        lambda inner: Config(a=inner),
        lambda inner: Config(Section=Config(a=inner)),
        lambda inner: OwnDict("site", a=inner),
        lambda inner: UserDict(a=inner),
        lambda inner: ChainMap({"a": inner}),
        lambda inner: MappingProxyType({"a": inner}),
        lambda inner: [inner],
        lambda inner: OwnList([inner]),
        lambda inner: UserList([inner]),
        lambda inner: deque([inner], maxlen=9),
        lambda inner: (inner, 1),
        lambda inner: Named(inner),
    ],
)
@pytest.mark.parametrize(
    "inner", [lambda: OrderedDict(b=[1]), lambda: deque([{"b": {1}}]), lambda: (Counter("b"),)]
)
def test_no_container_leaks_into_the_next_spawn(make, inner):
    spawner = Spawner(setting=make(inner()))
    configured = Settings(spawner)
    for _ in range(2):  # what was put back is the next spawn's to change
        change(spawner.setting)
        assert spawner.setting != make(inner())
        assert configured.restore(spawner) == ["setting"]
        assert spawner.setting == make(inner())
    if not isinstance(make(0), MappingProxyType | ChainMap):
        assert type(spawner.setting) is type(make(0))


def test_what_a_container_is_beside_its_items_is_kept():
    spawner = Spawner(setting=[defaultdict(list, a=[1]), deque([1], maxlen=2), OwnDict("site")])
    configured = Settings(spawner)
    change(spawner.setting)
    configured.restore(spawner)
    by_default, bounded, own, *_ = spawner.setting
    assert (by_default["new"], bounded.maxlen, own.name) == ([], 2, "site")


def test_objects_and_the_hubs_own_environment_stay_themselves(monkeypatch):
    spawner = Spawner()
    spawner.setting = {"hook": spawner.method, "environment": os.environ}
    configured = Settings(spawner)
    monkeypatch.setenv("GPULEASE_LEAKED", "1")
    assert configured.restore(spawner) == ["setting"]
    assert spawner.setting["hook"].__self__ is spawner
    assert "GPULEASE_LEAKED" not in spawner.setting["environment"]
    assert os.environ["GPULEASE_LEAKED"] == "1"
