"""Servers of each usual way to install the chart, offered by the hub's account to an API server."""

import pytest

from gpulease.hub import guard_list
from tests.helm_values.lease_pods import refusal
from tests.helm_values.test_admission import hub_of, policies, site_setting
from tests.helpers import wait_for
from tests.hub import chart
from tests.hub.conftest import start

__all__ = ["policies"]  # a fixture
pytestmark = [pytest.mark.cluster, chart.needs_chart]


@pytest.mark.parametrize("name", chart.INSTALLS)
async def test_the_api_server_takes_a_server(policies, name, tmp_path, monkeypatch, make_spawner):
    """With the lines that `gpulease doctor --hub` prints, where the site places its servers."""
    pod = await start(make_spawner(chart.configuration(name, tmp_path, monkeypatch)))
    pod["metadata"].pop("namespace", None)
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    if priority := pod["spec"].get("priorityClassName"):
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 0}
        policies.api.create({**body, "metadata": {"name": priority}})
    allowed = chart.INSTALLS[name].allowed
    lines = guard_list.expression(allowed or [" "])[4:-2]
    try:
        with site_setting(policies, "gpulease-no-gpu", "allow", lines):
            wait_for(lambda: not refusal(hub_of(policies), pod, policies.servers), 60, name)
        pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
        assert "device_resource: " in refusal(hub_of(policies), pod, policies.servers)
    finally:
        if priority:
            policies.api.delete(f"{classes}/{priority}")
