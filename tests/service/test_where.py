"""Which provider the service's options choose, and what it says where one is missing."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from gpulease.errors import GPULeaseError
from gpulease.providers.base import SupervisorLink
from gpulease.service.app import GPULeaseService
from gpulease.service.policies import Policies
from gpulease.service.where import ClusterOptions, open_kubernetes


def options_of(*argv: str, **settings: Any):
    service = GPULeaseService(**settings)
    service.initialize(["--log-level", "CRITICAL", *argv])
    return service.options()


def test_leases_run_on_this_machine_unless_told_otherwise():
    assert options_of().cluster is None


def test_a_cluster_is_described_by_the_options():
    found = options_of(
        *("--provider", "kubernetes"),
        namespaces=["hub", "jupyter-*"],
        installation="campus",
        lease_url="http://service:9980/services/gpulease/",
        mirror_limit="1GiB",
    ).cluster
    assert found is not None
    assert found.namespaces == ("hub", "jupyter-*")
    assert found.instance == "campus"
    assert found.mirror_limit == 2**30


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        (ClusterOptions(namespaces=("hub",)), "lease_url"),
        (ClusterOptions(namespaces=("hub",), lease_url="gpulease:9980"), "lease_url"),
        (ClusterOptions(lease_url="http://service/services/gpulease/"), "namespaces"),
        (
            ClusterOptions(namespaces=("hub",), lease_url="http://service/", agents="agent"),
            "agents",
        ),
    ],
)
async def test_a_missing_option_is_named(options: ClusterOptions, missing: str):
    nothing = cast("SupervisorLink", None)
    policies = Policies(cast("Any", None), cast("Callable[[], None]", None))
    with pytest.raises(GPULeaseError) as refused:
        await open_kubernetes(options, nothing, policies, lambda: None)
    assert refused.value.reason == "bad_option"
    assert refused.value.numbers == {"option": missing}
