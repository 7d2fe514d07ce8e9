"""Who holds a device's memory, where an error says that there is no room left."""

from types import SimpleNamespace

import pytest

from gpulease.companion import full_device
from gpulease.transfer import ways


class Tensor:
    def __init__(self, address, size):
        self.address, self.size = address, size


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """A library whose errors of this kind say that three megabytes are in use."""
    known = ways.Device(
        lambda error: 3_000_000 if isinstance(error, MemoryError) else None,
        lambda obj: {obj.address: obj.size} if type(obj) is Tensor else {},
    )
    monkeypatch.setattr(ways, "devices", [known])


def test_names_are_told_with_what_they_lead_to_the_largest_first():
    small, large = Tensor(1, 500_000), Tensor(2, 2_000_000)
    model = SimpleNamespace(layers=[{"w": large}, (large,)])
    values = {"small": small, "model": model, "alias": [model], "number": 1}
    assert full_device.explain(values, MemoryError()) == (
        "In use on the GPU: model, alias: 2.0 MB; small: 0.5 MB; in no variable: 0.5 MB."
    )


def test_other_errors_and_other_names_are_not_walked_into():
    held = Tensor(1, 1_000_000)
    space = {"held": held}
    exec("def f(): return held", space)
    assert full_device.explain(space, ValueError()) == ""
    said = full_device.explain({"f": space["f"]}, MemoryError())
    assert said == "In use on the GPU: in no variable: 3.0 MB."
