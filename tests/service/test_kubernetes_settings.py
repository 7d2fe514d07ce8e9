"""Which provider the service's options choose, and what it says where something is missing."""

import sys
from typing import Any, cast

import pytest

from gpulease.errors import GPULeaseError
from gpulease.providers.base import SupervisorLink
from gpulease.service.metrics import Metrics
from gpulease.service.settings.application import GPULeaseService
from gpulease.service.settings.options import KubernetesSettings

URL = "http://gpulease.hub:9980/services/gpulease"


def options_of(*argv: str, **settings: Any):
    service = GPULeaseService(**settings)
    service.initialize(argv)
    return service.options()


def provider_of(**given: Any):
    nothing = cast("SupervisorLink", None)
    return KubernetesSettings(**given).provider(nothing, tuple, tuple, lambda: None, Metrics())


def test_leases_run_on_this_machine_unless_told_otherwise():
    assert options_of().cluster is None


def test_a_file_says_how_the_cluster_is_used(tmp_path):
    path = tmp_path / "config.py"
    path.write_text(
        "c = get_config()\n"
        "c.GPULeaseService.provider = 'kubernetes'\n"
        "c.KubernetesSettings.namespaces = ['hub', 'jupyter-*']\n"
        f"c.KubernetesSettings.lease_service_url = '{URL}'\n"
        "c.KubernetesSettings.mirror_limit = '1GiB'\n"
    )
    found = options_of("--config", str(path)).cluster
    assert found is not None
    assert found.namespaces == ["hub", "jupyter-*"]
    settings = found.pod_settings()
    assert settings.service_url == f"{URL}/"
    assert settings.mirror_limit == 2**30
    assert settings.instance == "gpulease"


def test_without_its_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)  # as where it is not installed
    with pytest.raises(GPULeaseError) as refused:
        provider_of(lease_service_url=URL)
    assert refused.value.reason == "no_kubernetes"
    assert "gpulease[kubernetes]" in refused.value.next_step


def test_the_provider_is_made_without_a_cluster():
    assert provider_of(lease_service_url=URL).name == "kubernetes"


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, "lease_service_url"),
        ({"lease_service_url": "gpulease:9980"}, "lease_service_url"),
        ({"lease_service_url": URL, "mirror_limit": "much"}, "mirror_limit"),
        ({"lease_service_url": URL, "agent_account": "agent"}, "agent_account"),
    ],
)
def test_what_is_missing_is_named(given, missing):
    with pytest.raises(GPULeaseError) as refused:
        provider_of(**given)
    assert refused.value.reason == "bad_option"
    assert refused.value.numbers == {"option": missing}
